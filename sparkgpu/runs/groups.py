"""Gives a run's models their metrics in groups of the test rows, by the values of some columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sparkgpu.core.rundir.metrics_json import ModelResult
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.runs.pooled import Pooled
from sparkgpu.score.groups import by_group
from sparkgpu.score.predictions import LabelReader
from sparkgpu.score.segments import groupings_of


def with_groups(
    paths: RunPaths,
    schema: TableSchema,
    labels: LabelReader,
    pooled: Mapping[str, Pooled],
    models: Sequence[ModelResult],
    columns: Collection[str],
    seed: int,
) -> list[ModelResult]:
    """The models, each with its metrics by the user's `columns` and by those beside the features."""
    features = [one for one in schema.features if not one.is_derived and one.source in columns]
    own = schema.with_features([*features, *schema.beside])
    test = labels.all("test")
    titles = [one.title for one in (*own.numeric, *own.categorical)]
    groupings = dict(
        zip(
            titles,
            groupings_of(own, read_rows(paths, own, "test", every=labels.every.get("test", 1))),
            strict=True,
        )
    )

    def of(found: Pooled) -> dict[str, object]:
        made = (
            by_group(
                schema.task, test.label_N, found.test, title, grouping, weight_N=test.weight_N,
                asked=schema.metric, classes=schema.classes, seed=seed,
            )
            for title, grouping in groupings.items()
        )  # fmt: skip
        return {"groups": tuple(made)}

    return [
        model.model_copy(update=of(pooled[model.name])) if model.name in pooled else model for model in models
    ]
