"""The predictions of a run's models, read again, have the metrics that the run reported."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from made_run import MadeRun

from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import Task
from sparkgpu.score.metrics import compute
from sparkgpu.score.predictions import predictions_of_models

Split = Literal["valid", "test"]


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize(("folds", "failed"), [(None, {}), (3, {}), (3, {"neural-1": "out of memory"})])
def test_they_have_the_metrics_of_the_run_also_where_a_fold_failed_or_files_are_gone(
    task: Task, folds: int | None, failed: dict[str, str], tmp_path: Path
) -> None:
    run = MadeRun(task, folds)
    evaluated = run.evaluated(tmp_path, failed=failed)
    results = Results.model_construct(
        models=evaluated.models, trials=evaluated.trials, comparison=evaluated.comparison
    )
    paths, schema = RunPaths(root=tmp_path), run.schema
    splits: tuple[Split, ...] = ("valid", "test")
    for split in splits:
        found = predictions_of_models(paths, schema, results, split)
        assert list(found.values) == ["trees", "neural", "blend"]
        for model in results.models:
            values = found.values[model.name]
            there_N = ~np.isnan(values.reshape(len(values), -1)[:, 0])
            assert there_N.all() == (not failed or split == "test" or model.name == "trees")
            expected = (model.averaged or model.metrics).of(split)
            label_N = found.labels.label_N[there_N]
            assert compute(task, label_N, values[there_N]) == pytest.approx(expected)
    paths.trial("neural-0").predictions.unlink()  # and with it a blend of it
    assert results.models[-1].weights is not None and results.models[-1].weights["neural"] > 0
    for split in splits:
        assert list(predictions_of_models(paths, schema, results, split).values) == ["trees"]
