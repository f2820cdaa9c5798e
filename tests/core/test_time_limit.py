"""A time limit: how it is written, how its seconds are shared, and when trees and networks stop."""

from __future__ import annotations

import pytest
import torch
from test_plan import plan_of

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.precision import choose_precision
from sparkgpu.neural.training.time_limit import TimeLimit
from sparkgpu.trials.loop import TimeShares

LARGE = TableSize(task="multiclass", train_rows=400_000, num_features=54, num_classes=7)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("10m", 600), ("1h30m", 5400), ("1h 5m 3s", 3903), ("1.5m", 90), ("2d", 172800)],
)
def test_a_time_is_written_in_hours_minutes_and_seconds(text: str, seconds: float) -> None:
    assert config_io.load(options={"time_limit": text}).time_limit == seconds
    assert config_io.load(assignments=[f"time_limit={text}"]).time_limit == seconds


@pytest.mark.parametrize("text", ["-5s", "0", "soon", "", "5 minutes", "m"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="time_limit"):
        config_io.load(options={"time_limit": text})


def test_a_limit_gives_a_deadline_and_as_many_seeds_as_fit() -> None:
    plan = plan_of("time_limit=60s", started=1000.0)
    assert plan.deadline == 1054.0
    assert plan_of("time_limit=60s", "report.level=short", started=1000.0).deadline == 1060.0
    assert len({trial.seed for trial in plan.trials}) > 1
    assert len({trial.seed for trial in plan_of("time_limit=60s", "repeats=1").trials}) == 1
    assert plan_of().deadline is None


def test_the_more_trials_there_may_be_to_score_the_earlier_training_ends() -> None:
    schema = TableSchema.model_construct(splits={"valid": 1000, "test": 1000})

    def left_s(*assignments: str) -> float:
        plan = plan_of("time_limit=10m", "devices.cpu_lanes=1", *assignments)
        ends = plan.training_ends(schema)
        assert plan.deadline is not None and ends is not None
        return plan.deadline - ends

    assert 3.0 < left_s("repeats=1") < left_s() < 5.0 < left_s("preset=best", "split.folds=8") < 10.0


def test_a_large_table_gets_as_many_trees_and_epochs_as_its_time_may_hold() -> None:
    config = config_io.load()
    found = [plan.resolved(config, LARGE) for plan in map(plan_of, ("time_limit=60s", "time_limit=5m"))]
    default = plan_of().resolved(config, LARGE)
    assert found[0].trees.ntrees < default.trees.ntrees < found[1].trees.ntrees
    assert found[0].neural.epochs == default.neural.epochs < found[1].neural.epochs
    # Even with ten hours there is an end, since what is left goes to further seeds.
    most = plan_of("time_limit=10h").resolved(config, LARGE)
    assert most.trees.ntrees <= 2500 and most.neural.epochs <= 4 * default.neural.epochs
    small = TableSize(task="binary", train_rows=5_000, num_features=10, num_classes=2)  # it gets seeds
    limited, free = (plan.resolved(config, small) for plan in (plan_of("time_limit=5m"), plan_of()))
    assert (limited.neural, limited.trees.ntrees) == (free.neural, free.trees.ntrees)


def spec(model: str, seed: int, fold: int | None = None) -> TrialSpec:
    name = f"{model}-s{seed}" if fold is None else f"{model}-s{seed}-f{fold}"
    return TrialSpec(name=name, model=model, engine="xgboost", seed=seed, fold=fold, lane=0, gang=(0,))


def test_first_trials_share_the_time_that_is_left_and_later_seeds_must_fit() -> None:
    now = 0.0
    trials = [spec(model, seed) for seed in (7, 8) for model in ("a", "b", "c")]
    shares = TimeShares(trials, 90.0, clock=lambda: now)
    untils = []
    for trial, took in zip(trials[:3], (10.0, 40.0, 10.0), strict=True):
        assert shares.fits(trial)
        untils.append(shares.begin(trial))
        now += took
        shares.end(trial)
    assert untils == [30.0, 50.0, 90.0]  # a third of 90, half of 80, all of 40
    assert [shares.fits(trial) for trial in trials[3:]] == [True, True, True]  # 30 s are left
    now = 70.0
    assert [shares.fits(trial) for trial in trials[3:]] == [True, False, True]
    now = 85.0
    assert not any(shares.fits(trial) for trial in trials[3:])


def test_a_model_that_failed_is_not_tried_with_further_seeds_and_without_a_limit_all_fit() -> None:
    shares = TimeShares([spec("a", 7), spec("a", 8)], 90.0, clock=lambda: 0.0)
    shares.begin(spec("a", 7))
    assert not shares.fits(spec("a", 8))
    shares = TimeShares([spec("a", 7), spec("a", 8)], None)
    assert shares.fits(spec("a", 8)) and shares.begin(spec("a", 8)) is None


def test_two_folds_share_the_time_and_further_folds_and_seeds_must_fit() -> None:
    now = 0.0
    trials = [spec(model, seed, fold) for seed in (7, 8) for fold in (0, 1, 2) for model in ("a", "b")]
    shares = TimeShares(trials, 80.0, clock=lambda: now)
    untils = []
    for trial, took in zip(trials[:4], (20.0, 20.0, 10.0, 15.0), strict=True):
        assert shares.fits(trial)
        untils.append(shares.begin(trial))
        now += took
        shares.end(trial)
    assert untils == [20.0, 40.0, 60.0, 80.0]  # a quarter of 80, a third of 60, half of 40, all of 30
    assert [shares.fits(trial) for trial in trials[4:6]] == [True, True]  # 15 s are left
    assert shares.begin(trials[4]) == 80.0
    now = 73.0
    assert [shares.fits(trial) for trial in trials[4:]] == [True, False] * 4


def strategy() -> Strategy:
    from sparkgpu.core.config.model_keys import NeuralConfig

    device = torch.device("cpu")
    return Strategy(RankPlace(device=device, precision=choose_precision(NeuralConfig(), device, "CPU")))


def test_a_network_stops_early_enough_to_predict() -> None:
    now = 100.0
    limit = TimeLimit(160.0, valid_rows=1000, predicted_rows=2000, clock=lambda: now)
    limit.validated(5.0)  # 5 ms a row: what follows training takes some 20 s
    over_at = None
    while over_at is None:
        now += 1.0
        limit.after_step(strategy(), 256)
        over_at = now if limit.is_over else None
    assert 135.0 <= over_at <= 145.0
    assert not TimeLimit(None).is_over
    passed = TimeLimit(5.0, valid_rows=10, predicted_rows=20, clock=lambda: 9.0)
    assert not passed.is_over  # it leaves one step
    passed.after_step(strategy(), 256)
    assert passed.is_over


def test_before_the_first_validation_the_steps_tell_how_long_it_takes() -> None:
    now = 0.0
    limit = TimeLimit(60.0, valid_rows=10_000, predicted_rows=20_000, clock=lambda: now)
    while not limit.is_over:
        now += 0.1
        limit.after_step(strategy(), 256)  # 0.4 ms a row; forward alone less than half of it
    assert 50.0 <= now <= 56.0
