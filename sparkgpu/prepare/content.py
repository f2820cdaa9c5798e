"""The fingerprint of a local Parquet table's content by pyarrow and numpy, as Spark's job computes it.

It is the sum of the rows' hashes (`sparkgpu.prepare.statistics`), so it needs each value as Spark hashes it.
Limits: whole numbers, floats, truths and texts, which is what `sparkgpu.prepare.early` lets through.

N rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkgpu.prepare.parquet_rows import batches
from sparkgpu.prepare.statistics import digest
from sparkgpu.prepare.xxhash import SPARK_SEED, hash_bytes, hash_int, hash_long
from sparkgpu.table.rows import as_numpy
from sparkgpu.table.source import Source

_INTS = ("tinyint", "smallint", "int", "boolean", "float")
"""The types whose values Spark hashes as 32 bits; `bigint` and `double` have 64."""


def fingerprint_of(source: Source, types: Mapping[str, str]) -> str:
    """The fingerprint of a table whose columns have these types of Spark."""
    names = sorted(types)
    rows, mixed, total = 0, np.uint64(0), 0
    for batch in batches(source, names):
        hashed_N = np.full(batch.num_rows, SPARK_SEED, dtype=np.uint64)
        for name, column in zip(names, batch.columns, strict=True):
            valid_N = as_numpy(column.is_valid().cast(pa.uint8())).astype(np.bool_)
            seed_N = hashed_N[valid_N]
            hashed_N[valid_N] = _hashed(column.drop_null(), types[name], seed_N)
        rows += batch.num_rows
        mixed ^= np.bitwise_xor.reduce(hashed_N)
        total += int((hashed_N.view(np.int64) >> 32).sum())
    return digest(types, {"rows": rows, "mixed": int(mixed.astype(np.int64)), "sum": total})


def _hashed(column: pa.Array, kind: str, seed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The hashes of a column without nulls."""
    if kind == "string":
        return _hashed_texts(column, seed_N)
    if kind == "boolean":
        column = column.cast(pa.int8())
    value_N = as_numpy(column)
    if kind in ("float", "double"):
        value_N = value_N + value_N.dtype.type(0)  # -0 becomes 0, as in Spark
        value_N = np.where(np.isnan(value_N), value_N.dtype.type(np.nan), value_N)
        value_N = value_N.view(f"i{value_N.dtype.itemsize}")
    if kind in _INTS:
        return hash_int(value_N.astype(np.int32).view(np.uint32).astype(np.uint64), seed_N)
    return hash_long(value_N.astype(np.int64).view(np.uint64), seed_N)


def _hashed_texts(column: pa.Array, seed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Texts of one length are hashed together."""
    column = column.cast(pa.large_string())
    size_N = as_numpy(pc.binary_length(column))
    hashed_N = np.empty(len(column), dtype=np.uint64)
    for size in np.unique(size_N):
        own_N = np.flatnonzero(size_N == size)
        packed = column.take(pa.array(own_N))
        start = int(np.frombuffer(packed.buffers()[1], dtype=np.int64)[packed.offset])
        data = packed.buffers()[2]
        flat = np.frombuffer(data, dtype=np.uint8)[start:] if size else np.empty(0, dtype=np.uint8)
        value_NB = flat[: len(own_N) * int(size)].reshape(len(own_N), int(size))
        hashed_N[own_N] = hash_bytes(value_NB, seed_N[own_N])
    return hashed_N
