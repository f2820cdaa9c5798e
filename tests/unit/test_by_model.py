"""The predictions of a run's models, read again, have the metrics that the run reported."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from made_run import MadeRun

from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results
from sparkgpu.score.metrics import compute
from sparkgpu.score.predictions import ModelPredictions, predictions_of_models
from sparkgpu.table.schema import Feature, TableSchema, Task

Split = Literal["valid", "test"]


def read(
    run: MadeRun, root: Path, split: Split, failed: dict[str, str] | None = None
) -> tuple[Results, ModelPredictions]:
    found = run.evaluated(root, failed=failed)
    results = Results.model_construct(models=found.models, trials=found.trials, comparison=found.comparison)
    schema = TableSchema(
        source="made", target="y", task=run.task, classes=run.classes,
        features=(Feature(name="x", source="x", kind="numeric", pipeline="x"),),
        folds=run.folds, rows=run.rows, splits={}, fingerprint="",
    )  # fmt: skip
    return results, predictions_of_models(RunPaths(root=root), schema, results, split)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_they_have_the_metrics_of_the_run_with_and_without_folds(
    task: Task, folds: int | None, split: Split, tmp_path: Path
) -> None:
    results, found = read(MadeRun(task, folds), tmp_path, split)
    assert list(found.values) == ["trees", "neural", "blend"]
    for model in results.models:
        expected = (model.averaged or model.metrics).of(split)
        assert compute(task, found.labels.label_N, found.values[model.name]) == pytest.approx(expected)


def test_rows_of_a_failed_fold_have_no_prediction(tmp_path: Path) -> None:
    results, found = read(MadeRun("binary", 3), tmp_path, "valid", {"neural-1": "out of memory"})
    missing_N = np.isnan(found.values["neural"][:, 0])
    assert missing_N.any() and not missing_N.all()
    assert not np.isnan(found.values["trees"]).any()
    neural = next(model for model in results.models if model.name == "neural")
    assert neural.averaged is not None
    labels = found.labels.where(~missing_N)
    assert compute("binary", labels.label_N, found.values["neural"][~missing_N]) == pytest.approx(
        neural.averaged.valid
    )


def test_a_model_whose_predictions_are_gone_is_left_out_and_so_is_a_blend_of_it(tmp_path: Path) -> None:
    run = MadeRun("regression")
    results, _ = read(run, tmp_path, "test")
    paths = RunPaths(root=tmp_path)
    paths.trial("neural-1").predictions.unlink()
    schema = TableSchema(
        source="made", target="y", task="regression",
        features=(Feature(name="x", source="x", kind="numeric", pipeline="x"),),
        rows=run.rows, splits={}, fingerprint="",
    )  # fmt: skip
    assert results.models[-1].weights is not None and results.models[-1].weights["neural"] > 0
    assert list(predictions_of_models(paths, schema, results, "test").values) == ["trees"]
