"""Trees in two sizes: the validation rows choose, and one trial is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_trees import Table, cpu_lane, planned, table

from sparkgpu.engines.engine import Engine, Platform, TreesTrial, make_engine
from sparkgpu.engines.saved_model import check_saved_model
from sparkgpu.engines.trees.two_sizes import run_sizes
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.predictions import read_predictions

GROWN: dict[str, Any] = {
    "ntrees": 200, "grow_policy": "lossguide", "max_depth": 8, "max_leaves": 63, "learn_rate": 0.1,
    "min_rows": 1.0, "reg_lambda": 1.0, "early_stopping_rounds": 20, "try_smaller": True,
}  # fmt: skip


@pytest.fixture(params=["xgboost", "lightgbm"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name)
    return name


def trial(planted: Table, engine: str, **settings: Any) -> TreesTrial:
    values = {**GROWN, **settings}
    return planned(planted.paths, planted.schema, "trees", engine, cpu_lane(), planted.paths.root, **values)


def run(planted: Table, engine: str, **settings: Any) -> FitRecord:
    return run_sizes(make_engine(engine, Platform()), trial(planted, engine, **settings))


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


def test_small_trees_are_kept_where_the_target_is_noisy(engine: str, tmp_path: Path) -> None:
    planted = noisy_sum(tmp_path)
    record = run(planted, engine)
    assert record.notes[-1].startswith(
        "grown in two sizes, and the trees of at most 8 leaves kept: RMSE on the validation rows "
    )
    assert (record.trial, record.train_rows) == ("trees", len(planted.labels("train")))


def test_large_trees_are_kept_where_numbers_act_together(engine: str, tmp_path: Path) -> None:
    record = run(parity(tmp_path), engine)
    assert record.notes[-1].startswith(
        "grown in two sizes, and the trees of more leaves kept: log loss on the validation rows "
    )


def test_the_kept_trees_are_the_trial_and_nothing_else_is_left(engine: str, tmp_path: Path) -> None:
    planted = noisy_sum(tmp_path)
    stopped = planted.paths.trial("trees.1").root
    stopped.mkdir(parents=True)
    (stopped / "DONE").touch()
    record = run(planted, engine)
    assert [folder.name for folder in planted.paths.trial("trees").root.parent.iterdir()] == ["trees"]
    both = read_predictions(planted.paths.trial("trees").predictions, planted.schema)
    assert set(both) == {"valid", "test"}
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


def test_without_losses_to_choose_by_the_first_training_is_the_trial(engine: str, tmp_path: Path) -> None:
    asked = trial(noisy_sum(tmp_path), engine)
    silent = Curveless(make_engine(engine, Platform()))
    record = run_sizes(silent, asked)
    assert (record.trial, silent.trained, record.notes) == ("trees", 1, ())
    assert asked.paths.predictions.is_file()


def test_one_size_is_one_training(engine: str, tmp_path: Path) -> None:
    record = run(noisy_sum(tmp_path), engine, try_smaller=False)
    assert record.notes == ()


def test_a_search_tries_sizes_of_its_own(engine: str, tmp_path: Path) -> None:
    asked = trial(noisy_sum(tmp_path), engine)
    searched = replace(asked, spec=asked.spec.model_copy(update={"settings": 5}))
    assert run_sizes(make_engine(engine, Platform()), searched).notes == ()
