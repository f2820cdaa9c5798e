"""The difference of two models over folds: its interval, and which rows are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_run import MadeRun

from sparkgpu.score.over_folds import difference_over_folds


def test_the_interval_is_that_of_nadeau_and_bengio() -> None:
    mean, (low, high) = difference_over_folds([1.0, 2.0, 3.0])
    # Deviation 1, Student's t of 2 degrees 4.3027, and the root of 1/3 + 1/2 in place of that of 1/3.
    assert mean == 2.0 and low is not None and high is not None
    assert (low, high) == (pytest.approx(2.0 - 3.9278, abs=1e-4), pytest.approx(2.0 + 3.9278, abs=1e-4))
    assert difference_over_folds([1.0, 2.0]) == (1.5, (None, None))


def test_a_pair_says_in_how_many_folds_the_first_is_ahead(tmp_path: Path) -> None:
    found = MadeRun("regression", folds=4).evaluated(tmp_path)
    pair = next(pair for pair in found.comparison.pairs if (pair.a, pair.b) == ("trees", "neural"))
    by_fold = {(trial.model, trial.fold): trial.metrics.valid["rmse"] for trial in found.trials}
    differences = [by_fold["trees", fold] - by_fold["neural", fold] for fold in range(4)]
    over = pair.over_folds
    assert over is not None and over.folds == 4
    assert over.difference == pytest.approx(np.mean(differences))
    assert over.ahead == sum(difference < 0 for difference in differences)  # a smaller error is better
    without = MadeRun("regression").evaluated(tmp_path / "without")
    assert all(pair.over_folds is None for pair in without.comparison.pairs)


def test_models_are_judged_by_the_rows_that_all_of_them_predicted(tmp_path: Path) -> None:
    made = MadeRun("regression", folds=4)
    hard_N = (made.split_N == "train") & (made.fold_N == 1)
    made.predicted["trees-1"][hard_N] += 50.0  # in the fold that the network lacks
    found = made.evaluated(tmp_path, failed={"neural-1": "no time"})
    rmse = {model.name: model.averaged.valid["rmse"] for model in found.models if model.averaged}
    assert rmse["trees"] > 10 * rmse["neural"]  # each on its own rows
    blend = found.models[-1]
    assert blend.weights is not None and blend.weights["trees"] > blend.weights["neural"]
    first = next(pair for pair in found.comparison.pairs if pair.a != "blend")
    assert (first.a, first.b) == ("trees", "neural")
    assert {pair.over_folds.folds for pair in found.comparison.pairs if pair.over_folds} == {3}


def test_a_model_without_a_common_fold_takes_no_part_in_the_blend(tmp_path: Path) -> None:
    found = MadeRun("regression", folds=2).evaluated(
        tmp_path, failed={"trees-1": "out of memory", "neural-0": "out of memory"}
    )
    assert [model.name for model in found.models] == ["trees", "neural"]  # no blend
    assert found.comparison.leader == "trees"
    assert [(pair.a, pair.over_folds) for pair in found.comparison.pairs] == [("trees", None)]
