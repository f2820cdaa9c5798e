"""The first screen: a verdict that cannot be misread, the models in order, and what to run next."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.metrics_json import FailedTrial, PairResult, Results, SplitMetrics, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.entries import contestants, entries
from sparkgpu.present.figure import plot_style
from sparkgpu.present.leaderboard import given, leaderboard, spread_text
from sparkgpu.present.pictures import scores
from sparkgpu.present.report import build
from sparkgpu.present.result_tables import comparison, signed
from sparkgpu.present.table_model import Table
from sparkgpu.present.verdict import NextStep, in_words, next_steps, verdict

MakeRun = Callable[..., RunPaths]


@pytest.fixture
def results(plain_run: RunPaths) -> Results:
    return read_results(plain_run)


def pair(difference: float | None, low: float | None, high: float | None, **other: Any) -> PairResult:
    about = {"a": "trees", "b": "neural", "verdict": "tie", "sentence": "tie: a"} | other
    return PairResult.model_validate({**about, "difference": difference, "ci95": (low, high)})


@pytest.mark.parametrize(
    ("found", "metric", "values", "words"),
    [
        (
            pair(-0.0005, -0.0012, 0.0002), "roc_auc", {"trees": 0.9141, "neural": 0.9146},
            "the network and trees are level: ROC AUC 0.9146 and 0.9141, and a difference of 0.0005 could be "
            "chance (95 % interval −0.0002 to 0.0012)",
        ),
        (
            pair(-2084, -8974, 2952), "rmse", {"trees": 22401, "neural": 24485},
            "trees and the network are level: RMSE 22,401 and 24,485, smaller is better, and a difference of "
            "2,084 could be chance (95 % interval −2,952 to 8,974)",
        ),
        (
            pair(0.1, 0.05, 0.15, verdict="b"), "log_loss", {"trees": 0.5, "neural": 0.4},
            "the network is ahead of trees: log loss 0.4000 against 0.5000, smaller is better, a difference "
            "of 0.10 (95 % interval 0.05 to 0.15)",
        ),
        (
            pair(0.1, None, None, sentence="tie: a and b cannot be told apart in ROC AUC: too few rows"),
            "roc_auc", {"trees": 0.5, "neural": 0.4},
            "trees and the network cannot be told apart in ROC AUC: too few rows",
        ),
        (
            pair(0.0, 0.0, 0.0, sentence="tie: a and b are equal in RMSE: every row counts the same"),
            "rmse", {"trees": 0.5, "neural": 0.5},
            "trees and the network are equal in RMSE: every row counts the same",
        ),
    ],
)  # fmt: skip
def test_a_pair_in_words_puts_the_better_value_first(
    found: PairResult, metric: str, values: dict[str, float], words: str
) -> None:
    assert in_words(found, metric, values) == words


def cells(table: Table, model: str) -> dict[str, str]:
    row = next(row for row in table.rows if row[0].text == model)
    return {column: cell.text for column, cell in zip(table.columns, row, strict=True)}


def test_the_best_model_stands_first_with_what_it_took(results: Results) -> None:
    board = leaderboard(results, {"trees": (0.65, 0.75)})
    assert [row[0].text for row in board.rows] == ["blend", "trees", "neural"]
    trees = cells(board, "trees")
    assert trees["ROC AUC"] == "0.7000"
    assert trees["95 % interval"] == "0.6500 to 0.7500"
    assert trees["mean of trials"] == "0.7000 ± 0.0012"
    assert (trees["fit"], trees["predict"]) == ("12 s", "0.31 s")
    assert trees["device time"] == "26 s"
    assert cells(board, "blend")["fit"] == "–"
    priced = results.cost.model_copy(update={"device_hours": 2.0, "price": 3.0})  # shared out by device time
    board_of_priced = leaderboard(results.model_copy(update={"cost": priced}), {})
    assert cells(board_of_priced, "trees")["cost"] == "0.01068"  # 25.62 s at 1.5 an hour
    assert not {"cost", "status", "trained"} & set(board.columns)  # nothing in them


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [(0.98, 1.4e-16, " ± 0"), (0.98, 0.00123, " ± 0.0012"), (0.98, None, ""), (None, 0.1, "")],
)
def test_a_spread_that_is_only_rounding_is_zero(value: float | None, spread: float | None, text: str) -> None:
    assert spread_text(value, spread) == text


def with_trials(results: Results, model: str, **changes: object) -> Results:
    trials = tuple(
        trial.model_copy(update=changes) if trial.model == model else trial for trial in results.trials
    )
    return results.model_copy(update={"trials": trials})


def commands(found: tuple[NextStep, ...]) -> list[str]:
    return [step.command for step in found]


def test_a_model_that_still_improved_is_trained_twice_as_long(results: Results) -> None:
    cut = with_trials(results, "neural", steps=90, most_steps=90, still_improving=True)
    assert commands(next_steps(cut, folder="runs/a b")) == [
        "sparkgpu run --config 'runs/a b/run.toml' --set neural.epochs=180",
        "sparkgpu run --config 'runs/a b/run.toml' --preset best --time-limit 5m",
        "sparkgpu predict 'runs/a b' new_rows.parquet --out predictions.parquet",
    ]
    assert (
        "neural",
        "torch, 2 trials; 90 of 90 epochs; still improving at its limit; 25 s of training",
    ) in given(cut)


def test_a_time_limit_that_ended_training_is_doubled(results: Results) -> None:
    cut = with_trials(results, "trees", steps=50, most_steps=90, still_improving=True, out_of_time=True)
    cut = cut.model_copy(update={"run": cut.run.model_copy(update={"time_limit_s": 300.0})})
    assert commands(next_steps(cut, folder="r"))[0] == "sparkgpu run --config r/run.toml --time-limit 10m"


def test_where_few_rows_chose_folds_come_next_unless_the_run_had_them(
    results: Results, run_directory: MakeRun
) -> None:
    step = next_steps(results, folder="r")[0]
    assert step.reason == "Only 400 validation rows chose; over folds every row trains and chooses."
    assert step.command == "sparkgpu run --config r/run.toml --preset best --time-limit 5m"
    large = results.model_copy(update={"data": results.data.model_copy(update={"rows": 5_000})})
    for found in (large, read_results(run_directory(folds=2))):
        assert len(next_steps(found, folder="r")) == 1


def test_a_failed_trial_comes_first_with_the_command_that_trains_it(results: Results) -> None:
    first = results.trials[0]
    about = first.model_dump(include={"name", "model", "seed", "fold", "lane", "strategy", "devices"})
    failed = FailedTrial(**about, engine="torch", status="failed", error="no such column")
    broken = results.model_copy(update={"trials": (failed, *results.trials[1:])})
    assert commands(next_steps(broken, folder="r"))[0] == "sparkgpu run --resume --out r"


def test_there_are_at_most_three_steps_and_the_last_one_uses_the_model_if_there_is_one(
    results: Results, run_directory: MakeRun
) -> None:
    found = with_trials(results, "neural", steps=9, most_steps=9, still_improving=True)
    found = with_trials(found, "trees", steps=9, most_steps=9, still_improving=True)
    steps = next_steps(found, folder="r")
    assert len(steps) == 3
    assert steps[-1].command.startswith("sparkgpu predict r ")
    nothing = next_steps(read_results(run_directory(models=())), folder="r")
    assert commands(nothing) == ["sparkgpu run --resume --out r"]


def test_a_blend_of_one_model_is_no_row_and_is_said(
    run_directory: MakeRun, only_sections: Callable[..., None]
) -> None:
    only_sections("result")
    paths = run_directory()
    metrics = read_json(paths.metrics)
    blend = next(model for model in metrics["models"] if model["name"] == "blend")
    blend |= {"weights": {"trees": 1.0, "neural": 0.0}, "gains": {"trees": 0.1, "neural": 0.0}}
    write_json(paths.metrics, metrics)
    found = read_results(paths)
    assert [one.name for one in contestants(entries(found))] == ["trees", "neural"]
    assert not any("blend" in row[0].text for row in comparison(found).rows)
    assert "the blend" not in verdict(found)
    said = "The blend is trees alone: no other model makes it better on the validation rows."
    assert said in build(paths).read_text(encoding="utf-8")
    assert said in (paths.report / "report.md").read_text(encoding="utf-8")
    assert "What the blend is made of" not in (paths.report / "index.html").read_text(encoding="utf-8")


def test_numbers_with_many_decimals_do_not_touch_below_the_first_picture(results: Results) -> None:
    models = tuple(
        model.model_copy(update={"metrics": SplitMetrics(test={"roc_auc": 0.999812 + place / 1e5})})
        for place, model in enumerate(results.models)
    )
    with plot_style():
        drawn = scores.leaderboard(results.model_copy(update={"models": models}), {})
    assert drawn is not None
    numbers = re.findall(r">(0\.9998\d+)</text>", drawn.svg)
    assert 2 <= len(numbers) <= 5


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (-0.0048, 0.11, "−0.005"), (0.0123, 0.11, "+0.01"), (-1e-9, 0.11, "0.0000"), (0.0, 0.11, "0.00"),
        (-31.2, 50.0, "−31"), (-0.0048, None, "−0.00480"), (0.2, 50.0, "+0.2"),
    ],
)  # fmt: skip
def test_a_difference_keeps_its_sign_and_is_not_shown_as_nothing(
    value: float, width: float | None, text: str
) -> None:
    assert signed(value, width) == text
