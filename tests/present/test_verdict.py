"""The verdict: who leads, what the blend is made of, and which caveats belong to it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from made_run import MadeRun

from sparkgpu.core.rundir.curve import CurvePoint, still_improving
from sparkgpu.core.table.schema import Task
from sparkgpu.score import metrics


def test_the_leader_is_chosen_on_validation_rows(tmp_path: Path) -> None:
    made = MadeRun("regression")
    is_test_N = made.split_N == "test"
    for name, values_N in made.predicted.items():
        lucky_N = is_test_N if name.startswith("neural") else ~is_test_N
        values_N[lucky_N] = made.label_N[lucky_N]
    found = made.evaluated(tmp_path)
    best_on_test = min(found.models, key=lambda model: model.metrics.test["rmse"] or 0.0)
    assert (best_on_test.name, found.comparison.leader) == ("neural", "trees")


def test_rows_of_a_failed_fold_take_no_part(tmp_path: Path) -> None:
    made = MadeRun("binary", folds=3)
    found = made.evaluated(tmp_path, failed={"neural-2": "it broke"})
    own_N = (made.split_N == "train") & (made.fold_N != 2)
    share_NC = np.where((made.fold_N == 0)[:, None], made.predicted["neural-0"], made.predicted["neural-1"])
    expected = metrics.compute("binary", made.label_N[own_N], share_NC[own_N])
    neural, blend = (
        next(model for model in found.models if model.name == name) for name in ("neural", "blend")
    )
    assert neural.status == "partial"
    assert neural.averaged is not None
    assert neural.averaged.valid == pytest.approx(expected)
    # Worthless predictions in the place of the missing ones would change the blend; they are not there.
    made.predicted["neural-2"] = made.predicted["neural-2"][:, ::-1]
    again = made.evaluated(tmp_path / "again", failed={"neural-2": "it broke"})
    assert again.models[-1] == blend


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_the_blend_is_no_worse_than_its_best_member_on_validation_rows(task: Task, tmp_path: Path) -> None:
    found = MadeRun(task).evaluated(tmp_path)
    metric = found.comparison.metric
    members = {model.name: model.averaged.valid[metric] for model in found.models if model.averaged}
    blend = found.models[-1].metrics.valid[metric]
    assert set(members) == {"trees", "neural"}
    assert "blend" in metrics.best(metric, {"blend": blend, **members})


def test_averaged_predictions_stand_beside_the_mean_of_single_trials(tmp_path: Path) -> None:
    made = MadeRun("regression")
    trees = made.evaluated(tmp_path).models[0]
    is_test_N = made.split_N == "test"
    mean_N = (made.predicted["trees-0"] + made.predicted["trees-1"])[is_test_N] / 2
    assert trees.averaged is not None
    assert trees.averaged.test == pytest.approx(
        metrics.compute("regression", made.label_N[is_test_N], mean_N)
    )
    assert (trees.averaged.test["rmse"] or 0) < (trees.metrics.test["rmse"] or 0)


def test_a_model_that_is_no_better_than_a_constant_is_named(tmp_path: Path) -> None:
    made = MadeRun("multiclass")
    assert made.evaluated(tmp_path / "fine").comparison.caveats == ()
    for name in ("trees-0", "trees-1"):
        made.predicted[name] = np.roll(made.predicted[name], 1, axis=1)
    (caveat,) = made.evaluated(tmp_path / "worse").comparison.caveats
    assert caveat.startswith("trees: no better than one constant prediction for all test rows (log loss 1.")


def test_a_model_whose_probabilities_alone_are_no_better_than_a_constant_is_said_to_rank_better(
    tmp_path: Path,
) -> None:
    made = MadeRun("binary")
    for name in ("neural-0", "neural-1"):
        share_NC = made.predicted[name] ** 20  # far too sure, in the same order
        made.predicted[name] = share_NC / share_NC.sum(axis=1, keepdims=True)
    (caveat,) = made.evaluated(tmp_path).comparison.caveats
    assert re.fullmatch(
        r"neural: its probabilities are no better than one constant prediction for all test rows \(log loss "
        r"\d\.\d+ against 0\.6\d+\); its order of the rows is \(ROC AUC 0\.\d+\)",
        caveat,
    )


def curve(*values: float) -> list[CurvePoint]:
    return [
        CurvePoint(step=10 * (place + 1), elapsed_s=None, train=None, valid=value)
        for place, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "most_steps", "answer"),
    [
        ([5, 4, 3, 2.5, 2, 1.8, 1.6, 1.5, 1.4, 1.3], 100, True),
        ([5, 4, 3, 2.5, 2, 1.8, 1.6, 1.5, 1.4, 1.3], 200, False),  # it stopped earlier
        ([5, 4, 3, 2.5, 2, 1.8, 1.6, 1.5, 1.4, 1.3999], 100, False),  # hardly anything
        ([5, 4, 3, 2.5, 2, 1.8, 1.6, 1.2, 1.4, 1.3], 100, False),  # the best was before
        ([5, 4], 20, False),  # too few points to tell
    ],
)
def test_training_that_still_gains_at_its_limit_is_told(
    values: list[float], most_steps: int, answer: bool
) -> None:
    assert still_improving(curve(*values), most_steps) is answer
    assert not still_improving(curve(*values), most_steps, anneals=True)
