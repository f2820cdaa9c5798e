"""The prepared table of a bench, made without Spark from some rows of a source.

Columns are taken by their types alone (`sparkgpu.prepare.frame_table`), so a run may use fewer of them; the
speed of a network hardly depends on that. Limit: the rows are in memory.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkgpu.advise.sample import rows_of, task_of
from sparkgpu.config.keys import RunConfig
from sparkgpu.errors import DataError
from sparkgpu.prepare.roles import check_columns
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import TableSchema, Task
from sparkgpu.table.source import Source

_VALID = 0.05
_SPLITS = ("train", "valid", "test")


def write_bench_table(paths: RunPaths, source: Source, config: RunConfig, most_rows: int) -> TableSchema:
    """Write ``table/`` with at most `most_rows` rows.

    Raises `DataError` if they cannot be read, or if nothing can be learned from them.
    """
    from sparkgpu.prepare.encoding import Encoder
    from sparkgpu.prepare.frame_table import early_stop_split, frame_features, write_frame_table

    _, _, table = rows_of(source, most_rows)
    names = dict.fromkeys(table.column_names, "string")
    target = check_columns(names, target=config.data.target, roles={}, others=())
    table = table.filter(pc.is_valid(table[target])).combine_chunks()
    label = table[target].combine_chunks()
    task, classes, label_N = _learned(label, target, config.data.task)
    features = pa.table(
        {
            name: _typed(column)
            for name, column in zip(table.column_names, table.columns, strict=True)
            if name != target and name not in config.data.ignore and not pa.types.is_nested(column.type)
        }
    )
    split_N = early_stop_split(label_N, bool(classes), _VALID, config.seed)
    schema = TableSchema(
        source=source.name,
        target=target,
        task=task,
        classes=classes,
        features=frame_features(features, split_N == "train"),
        rows=features.num_rows,
        splits={name: int((split_N == ("valid" if name == "test" else name)).sum()) for name in _SPLITS},
        fingerprint="",
    )
    write_frame_table(paths, schema, Encoder(schema, {}).rows(features), label_N, None, split_N)
    return schema


def _learned(
    label: pa.Array, name: str, asked: str
) -> tuple[Task, tuple[str, ...], NDArray[np.int64 | np.float64]]:
    """The task, the classes in their order, and the labels (N,): codes of classes, or values."""
    task, counts = task_of(label, name, asked)
    if task == "regression":
        return task, (), np.asarray(label.cast(pa.string()).cast(pa.float64()))
    order = sorted(counts)
    if len(order) < 2:
        raise DataError(f"target {name!r} has one class in all rows; there is nothing to learn.")
    codes = pc.index_in(label, value_set=pa.array(order, label.type))
    return task, tuple(map(str, order)), np.asarray(codes).astype(np.int64)


def _typed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts that all are numbers, and one of truths, as numbers."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        with suppress(pa.ArrowException):
            return column.cast(pa.float64())
    return column
