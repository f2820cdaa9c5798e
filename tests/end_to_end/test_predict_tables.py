"""Predictions of a moved run equal those of its trials: real tables of every task, every engine of trees."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import COMMAND, finished, kept

import sparkgpu
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TABLES = [
    ("adult", "income", "h2o-xgboost"),
    ("adult", "income", "lightgbm"),
    ("california_housing", "MedHouseVal", "h2o-xgboost"),
    ("california_housing", "MedHouseVal", "xgboost"),
    ("letter", "target", "h2o-xgboost"),
    ("letter", "target", "lightgbm"),
    ("ames_housing", "Sale_Price", "h2o-xgboost"),
    ("ames_housing", "Sale_Price", "xgboost"),
]


@pytest.mark.filterwarnings("ignore:values that training never saw")
@pytest.mark.parametrize(("table", "target", "engine"), TABLES)
def test_every_model_predicts_the_test_rows_as_its_run_did(
    real_table, table: str, target: str, engine: str, tmp_path: Path
) -> None:
    source = real_table.path(table)
    if engine != "h2o-xgboost":
        pytest.importorskip(engine)
    run = finished(
        [*COMMAND, "run", source, "--target", target, "--cpu-lanes", "1", "--set", f"trees.engine={engine}",
         "--set", "trees.ntrees=40", "--set", "neural.epochs=1"],
        tmp_path / "out", tmp_path, within_s=400,
    )  # fmt: skip
    moved = tmp_path / "elsewhere" / "run"
    moved.parent.mkdir()
    shutil.move(run.paths.root, moved)
    paths = RunPaths(root=moved)
    frame = pd.read_parquet(source)
    rows = frame[[*reversed(frame.columns)]]  # other order of columns
    for name in ("trees", "neural", "blend"):
        model = sparkgpu.load(moved, name)
        expected = kept(paths, model.members)
        chosen = rows.iloc[expected.index]
        found = model.predict_proba(chosen) if len(expected.columns) > 1 else model.predict(chosen)[:, None]
        size = max(np.abs(expected.to_numpy()).max(), 1.0)
        assert np.abs(found - expected.to_numpy()).max() / size < 1e-6
    fits = [trial.device_proof for trial in read_results(paths).done()]
    assert len(fits) == 2
