"""Writes prepared tables from columns of a test: numbers, or the texts of a categorical feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.rundir.metrics_json import DataInfo, Results, write_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import Feature, TableSchema
from sparkgpu.core.table.writer import table_rows


def feature(name: str, *levels: str) -> Feature:
    """A numeric feature, or a categorical one if it has levels."""
    kind: Any = "categorical" if levels else "numeric"
    return Feature(name=name, source=name, kind=kind, pipeline=name, levels=levels)


def made_rows(
    features: Sequence[Feature],
    columns: Mapping[str, Any],
    label_N: Any,
    *,
    row_id_N: Any = None,
    weight_N: Any = None,
    fold_N: Any = None,
) -> pa.Table:
    """Rows as a table holds them; a text that is no level of its feature is missing, as None and NaN are."""
    rows = len(label_N)
    slot_NF = np.empty((rows, len(features)), dtype=np.float32)
    for place, one in enumerate(features):
        values = columns[one.name]
        if one.kind == "categorical":
            code_of = {level: code for code, level in enumerate(one.levels)}
            values = [code_of.get(text, np.nan) for text in values]
        with np.errstate(over="ignore"):
            slot_NF[:, place] = np.asarray(values, dtype=np.float64)
    return table_rows(
        features,
        np.arange(rows) if row_id_N is None else np.asarray(row_id_N),
        np.asarray(label_N),
        None if weight_N is None else np.asarray(weight_N),
        None if fold_N is None else np.asarray(fold_N),
        slot_NF,
    )


def write_splits(
    paths: RunPaths, rows: pa.Table, split_N: Any, *, parts: int = 1, group_rows: int | None = None
) -> None:
    """Write each row to its split; with several `parts`, the rows lie in as many files."""
    part_N = np.arange(rows.num_rows) * parts // rows.num_rows
    for split in np.unique(split_N):
        for part in range(parts):
            own_N = (np.asarray(split_N) == split) & (part_N == part)
            write_part(paths, str(split), rows.filter(pa.array(own_N)), part, group_rows=group_rows)


def write_part(
    paths: RunPaths, split: Any, rows: pa.Table, part: int = 0, *, group_rows: int | None = None
) -> None:
    """Write one file of a split."""
    paths.split(split).mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, paths.split(split) / f"part-{part:05d}.parquet", row_group_size=group_rows)


def write_made_results(paths: RunPaths, schema: TableSchema, **found: Any) -> None:
    """``metrics.json`` of a run on this table: `models`, `comparison` and, if there are any, `trials`."""
    host = {
        "system": "Linux", "processor": "CPU", "cores": 2, "available_memory_bytes": 2**34, "gpus": [],
        "driver": None,
    }  # fmt: skip
    run = {
        "name": "made", "started_at": "2026-11-21T03:00:00Z", "wall_s": 1.0, "sparkgpu": "0.1.0",
        "versions": {}, "host": host, "peak_rss_bytes": 1,
    }  # fmt: skip
    data = schema.model_dump(include=set(DataInfo.model_fields)) | {"num_features": len(schema.features)}
    cost = {"device_hours": 0.0, "energy_wh": None, "price": None}
    whole = {"schema_version": 1, "run": run, "data": data, "trials": [], "cost": cost, **found}
    write_results(paths, Results.model_validate(whole))
