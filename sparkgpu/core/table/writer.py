"""Writes the rows of the prepared table: one float32 column for each feature. pyarrow and numpy only.

A row is ``row_id`` int64, ``label`` (int32 class codes or float64 values; of several targets a list of
float64), ``weight`` float64 and ``fold``
int32 where the table has them, then the features in the schema's order. A level code is a number like any
other, and NaN is a missing value; no column has nulls, which halves the time to read it.

N rows, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import FOLD, LABEL, ROW_ID, WEIGHT, Feature

GROUP_ROWS = 131_072
_GROUP_VALUES = 32_000_000  # a row group waits in memory until it is written: 128 MB of a wide table


def table_rows(
    features: Sequence[Feature],
    row_id_N: NDArray[np.int64],
    label_N: NDArray[Any],
    weight_N: NDArray[np.float64] | None,
    fold_N: NDArray[np.int32] | None,
    slot_NF: NDArray[np.float32],
) -> pa.Table:
    """Rows as the table holds them. `slot_NF` holds the assembled vectors, with codes as numbers."""
    assert slot_NF.dtype == np.float32 and slot_NF.shape == (len(row_id_N), len(features))
    columns: dict[str, pa.Array] = {ROW_ID: pa.array(row_id_N.astype(np.int64)), LABEL: _labels(label_N)}
    if weight_N is not None:
        columns[WEIGHT] = pa.array(weight_N.astype(np.float64))
    if fold_N is not None:
        columns[FOLD] = pa.array(fold_N.astype(np.int32))
    slot_FN = np.ascontiguousarray(slot_NF.T)
    columns |= {feature.name: pa.array(slot_N) for feature, slot_N in zip(features, slot_FN, strict=True)}
    return _table(columns)


def with_label(rows: pa.Table, label_N: NDArray[Any], weight_N: NDArray[np.float64] | None) -> pa.Table:
    """The rows of a table of several targets, with the label and the weight of one."""
    columns = dict(zip(rows.column_names, rows.columns, strict=True)) | {LABEL: _labels(label_N)}
    if weight_N is not None:
        columns[WEIGHT] = pa.array(weight_N.astype(np.float64))
    return _table(columns)


def _labels(label_N: NDArray[Any]) -> pa.Array:
    if label_N.ndim > 1:
        return pa.FixedSizeListArray.from_arrays(label_N.astype(np.float64).ravel(), label_N.shape[1])
    return pa.array(label_N.astype(np.int32 if np.issubdtype(label_N.dtype, np.integer) else np.float64))


def _table(columns: dict[str, Any]) -> pa.Table:
    fields = [pa.field(name, column.type, nullable=False) for name, column in columns.items()]
    return pa.Table.from_arrays([*columns.values()], schema=pa.schema(fields))


def slots(features: Sequence[Feature], rows: Rows) -> NDArray[np.float32]:
    """The assembled vectors (N, F) of rows whose numbers and codes are in two matrices; no value is -0."""
    slot_NF = np.empty((len(rows.row_id_N), len(features)), dtype=np.float32)
    numbers, codes = iter(rows.numeric_NF.T), iter(rows.codes_NK.T)
    for place, feature in enumerate(features):
        if feature.kind == "numeric":
            slot_NF[:, place] = next(numbers)
        else:
            code_N = next(codes)
            slot_NF[:, place] = np.where(code_N < 0, np.float32("nan"), code_N)
    return slot_NF + np.float32(0)


class SplitFile:
    """One split's file of one task, or of a table; it gets its final name, complete, only in `close`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / name
        self._temporary = folder / f".{name}"
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._rows_waiting = 0
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._rows_waiting += rows.num_rows
        if self._rows_waiting >= min(GROUP_ROWS, _GROUP_VALUES // rows.num_columns):
            self._flush()

    def close(self) -> int:
        """Write the remaining rows, rename the file, and return its number of rows."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._temporary.replace(self._path)
        return self._rows

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        if self._writer is None:
            # Snappy, since H2O's own Parquet reader knows no LZ4 and Spark's no split bytes; a dictionary of
            # numbers costs ten times the writing; only the ids' statistics are ever read.
            self._writer = pq.ParquetWriter(
                self._temporary,
                rows.schema,
                compression="snappy",
                use_dictionary=False,
                write_statistics=[ROW_ID],
            )
        groups = max(1, round(rows.num_rows / GROUP_ROWS))
        self._writer.write_table(rows, row_group_size=-(-rows.num_rows // groups))
        self._rows += rows.num_rows
        self._waiting, self._rows_waiting = [], 0
