"""Hashes of rows and values, and places in [0, 1) that follow: the same in all processes and machines.

A run is known by its rows' hashes (the fingerprint). The split cuts the places of row ids, or of groups.

N rows, D different values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pandas.util import hash_array

from sparkgpu.core.table.rows import as_numpy
from sparkgpu.prepare.column_values import as_float64, decoded, numbers, timestamps
from sparkgpu.prepare.columns import is_number, own_columns, spark_type

_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL_HASH = np.uint64(0x8F5A6C1D2B7E9043)

# From xxHash64's specification: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH = map(
    np.uint64,
    (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
_START = 42
_BITS = 53  # the bits of a double's mantissa


def row_hashes(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """A hash of each row's content (N,), whatever the columns' order and types; sums wrap on purpose."""
    hash_N = np.zeros(batch.num_rows, dtype=np.uint64)
    for name in sorted(own_columns(batch.schema.names)):
        hash_N = hash_N * _MIX + _content_hashes(decoded(batch.column(name)))
    return hash_N


def _content_hashes(column: pa.Array) -> NDArray[np.uint64]:
    """A hash of each value (N,): that of a number is the same in any type, and NaN counts as null."""
    if not is_number(spark_type(column.type)):
        return value_hashes(column)
    found = numbers(column)
    if found.type == pa.uint64():  # which Spark reads as decimals
        found = found.cast(pa.float64(), safe=False)
    number_N = as_float64(found) + 0.0  # -0 becomes 0
    hash_N: NDArray[np.uint64] = hash_array(number_N)
    is_large_N = (np.abs(number_N) >= 2.0**_BITS) & (np.abs(number_N) < 2.0**63)
    if is_large_N.any():  # to the last digit
        hash_N[is_large_N] = hash_array(as_numpy(found.filter(pa.array(is_large_N)).cast(pa.int64())))
    hash_N[np.isnan(number_N)] = _NULL_HASH
    return hash_N


def value_hashes(column: pa.Array) -> NDArray[np.uint64]:
    """A hash of each value (N,), by pandas: the same in every process and on every machine."""
    column = decoded(column)
    if pa.types.is_uint64(column.type):  # which Spark reads as decimals
        column = column.cast(pa.decimal128(20, 0))
    if column.null_count == len(column):
        return np.full(len(column), _NULL_HASH)
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = timestamps(column).view(pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_integer(kind):
        column = column.cast(pa.int64(), safe=False)
    elif pa.types.is_floating(kind):
        column = column.cast(pa.float64())
    else:  # each different value once
        coded = column.dictionary_encode() if not pa.types.is_nested(kind) else _coded(column.to_pylist())
        texts = np.array([str(value) for value in coded.dictionary.to_pylist()], dtype=object)
        hash_D = np.append(hash_array(texts, categorize=False), _NULL_HASH)
        hash_N: NDArray[np.uint64] = hash_D[as_numpy(coded.indices.fill_null(len(texts)).cast(pa.int64()))]
        return hash_N
    valid_N = as_numpy(column.is_valid().cast(pa.uint8())) if column.null_count else None
    value_N = as_numpy(column.fill_null(0))
    if pa.types.is_floating(column.type):
        value_N = np.where(np.isnan(value_N), np.nan, value_N + 0.0)  # -0 becomes 0, and there is one NaN
    hash_N = hash_array(value_N)
    return hash_N if valid_N is None else np.where(valid_N, hash_N, _NULL_HASH)


def _coded(values: list[Any]) -> pa.DictionaryArray:
    return pa.array([None if value is None else str(value) for value in values]).dictionary_encode()


def places_of(seed: int, row_id_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """The places (N,) of rows with these ids, for a 31-bit seed. Sums and products wrap on purpose."""
    assert 0 <= seed < 2**31
    seed_1 = np.array([_START], dtype=np.uint64) + _FIFTH + np.uint64(4)
    seed_1 = mixed(_rotated(seed_1 ^ (np.array([seed], dtype=np.uint64) * _FIRST), 23) * _SECOND + _THIRD)
    hash_N = (seed_1 + _FIFTH + np.uint64(8)) ^ (_rotated(row_id_N.astype(np.uint64) * _SECOND, 31) * _FIRST)
    return as_places(mixed(_rotated(hash_N, 27) * _FIRST + _FOURTH))


def as_places(hash_N: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Hashes (N,) as numbers in [0, 1)."""
    return (hash_N >> np.uint64(64 - _BITS)).astype(np.float64) / float(2**_BITS)


def mixed(hash_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits of hashes (N,) over all bits: the end of xxHash64."""
    hash_N = (hash_N ^ (hash_N >> np.uint64(33))) * _SECOND
    hash_N = (hash_N ^ (hash_N >> np.uint64(29))) * _THIRD
    return hash_N ^ (hash_N >> np.uint64(32))


def _rotated(value_N: Any, bits: int) -> NDArray[np.uint64]:
    found_N: NDArray[np.uint64] = (value_N << np.uint64(bits)) | (value_N >> np.uint64(64 - bits))
    return found_N
