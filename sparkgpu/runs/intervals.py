"""Gives a run's models their intervals, or sets of classes, and measures them on the test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkgpu.core.rundir.intervals import IntervalsResult
from sparkgpu.core.rundir.metrics_json import ModelResult
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.runs.pooled import Pooled
from sparkgpu.score.conformal import calibrated, measured
from sparkgpu.score.predictions import LabelReader
from sparkgpu.score.segments import by_level, groupings_of

_MOST_ROWS = 200_000  # of the test split: features are read to find groups


def with_intervals(
    paths: RunPaths,
    schema: TableSchema,
    labels: LabelReader,
    pooled: Mapping[str, Pooled],
    models: Sequence[ModelResult],
    coverage: float,
) -> list[ModelResult]:
    """The models, each with intervals by its mean predictions of the validation rows."""
    valid, test = labels.all("valid"), labels.all("test")
    every = -(-len(test.label_N) // _MOST_ROWS) or 1
    groupings = groupings_of(
        schema, read_rows(paths, schema, "test", every=every * labels.every.get("test", 1))
    )
    test = test.part(slice(None, None, every))
    if schema.classes:
        groupings.append(by_level(schema.target, schema.classes, test.label_N.astype(int)))

    def of(found: Pooled) -> IntervalsResult:
        has_N = found.has_valid_N
        rows = valid.part(has_N)
        fitted = calibrated(schema.task, coverage, rows.label_N, found.valid[has_N], weight_N=rows.weight_N)
        return measured(
            schema.task, fitted, test.label_N, found.test[::every], groupings, weight_N=test.weight_N
        )

    return [
        model.model_copy(update={"intervals": of(pooled[model.name])}) if model.name in pooled else model
        for model in models
    ]
