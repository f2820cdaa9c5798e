"""Trees in two sizes: the validation rows choose, and one trial is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_trees import Table, planned, table

from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.trials.engine import Engine, Platform, TreesTrial, make_engine
from sparkgpu.trials.saved_model import check_saved_model
from sparkgpu.trials.two_sizes import run_sizes

GROWN: dict[str, Any] = {
    "ntrees": 200, "grow_policy": "lossguide", "max_depth": 8, "max_leaves": 63, "learn_rate": 0.1,
    "min_rows": 1.0, "reg_lambda": 1.0, "early_stopping_rounds": 20, "try_smaller": True,
}  # fmt: skip


def trial(planted: Table, engine: str, **settings: Any) -> TreesTrial:
    return planned(planted, "trees", engine, **{**GROWN, **settings})


def noisy_sum(root: Path) -> Table:
    """Each number adds its part, and most of the target is noise."""
    random = np.random.default_rng(1)
    x_NF = random.normal(size=(1200, 6))
    label_N = x_NF.sum(axis=1) + 4.0 * random.normal(size=1200)
    return table(root, label_N, {f"x{place}": x_NF[:, place] for place in range(6)})


def parity(root: Path) -> Table:
    """Only five numbers together tell the target: eight leaves cannot hold it."""
    random = np.random.default_rng(2)
    x_NF = random.integers(0, 2, (4000, 5))
    return table(
        root, x_NF.sum(axis=1) % 2, {f"x{place}": x_NF[:, place].astype(float) for place in range(5)}
    )


@pytest.mark.parametrize(
    ("made", "note"),
    [
        (noisy_sum, "the trees of at most 8 leaves kept: RMSE on the validation rows "),
        (parity, "the trees of more leaves kept: log loss on the validation rows "),
    ],
)
def test_the_trees_that_the_validation_rows_prefer_are_the_trial_and_nothing_else_is_left(
    exact_engine: str, tmp_path: Path, made: Callable[[Path], Table], note: str
) -> None:
    planted = made(tmp_path)
    stopped = planted.paths.trial("trees.1").root
    stopped.mkdir(parents=True)
    (stopped / "DONE").touch()
    record = run_sizes(make_engine(exact_engine, Platform()).run, trial(planted, exact_engine))
    assert record.notes[-1].startswith(f"grown in two sizes, and {note}")
    assert (record.trial, record.train_rows) == ("trees", len(planted.labels("train")))
    assert [folder.name for folder in planted.paths.trial("trees").root.parent.iterdir()] == ["trees"]
    check_saved_model(record, planted.paths, planted.schema)


class Curveless:
    """An engine of another package, whose learning curve stays empty."""

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine, self.trained = engine, 0

    def run(self, trial: TreesTrial) -> FitRecord:
        self.trained += 1
        record = self._engine.run(trial)
        trial.paths.learning_curve.write_text("")
        return record


def test_without_losses_to_choose_by_the_first_training_is_the_trial(tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    asked = trial(noisy_sum(tmp_path), "xgboost")
    silent = Curveless(make_engine("xgboost", Platform()))
    record = run_sizes(silent.run, asked)
    assert (record.trial, silent.trained, record.notes) == ("trees", 1, ())
    assert asked.paths.predictions.is_file()


@pytest.mark.parametrize(("try_smaller", "searched"), [(False, 0), (True, 5)])
def test_one_size_and_a_search_are_one_training(tmp_path: Path, try_smaller: bool, searched: int) -> None:
    pytest.importorskip("xgboost")
    asked = trial(noisy_sum(tmp_path), "xgboost", try_smaller=try_smaller)
    asked = replace(asked, spec=asked.spec.model_copy(update={"settings": searched}))
    assert run_sizes(make_engine("xgboost", Platform()).run, asked).notes == ()
