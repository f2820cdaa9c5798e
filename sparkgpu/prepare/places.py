"""Each row's place in [0, 1), a hash of the seed and the row's id: as a Spark column, and by numpy.

The hash is Spark's ``xxhash64``. numpy computes the same hash, so the training rows are known without a slow
first job in a new JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import Column

# From xxHash64's specification: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
_PRIMES = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip
_SPARK_SEED = 42
_BITS = 53  # the bits of a double's mantissa


def place(seed: int, key: Column) -> Column:
    """The place of each row by its id or group `key`."""
    from pyspark.sql import functions as F

    hashed = F.xxhash64(F.lit(seed), key)
    return F.shiftrightunsigned(hashed, 64 - _BITS).cast("double") / F.lit(float(2**_BITS))


def places_of(seed: int, row_id_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """The places (N,) of rows with these ids, for a 31-bit seed."""
    assert 0 <= seed < 2**31
    start_1 = _hash_int(np.array([seed], dtype=np.uint64), np.array([_SPARK_SEED], dtype=np.uint64))
    hashed_N = _hash_long(row_id_N.astype(np.uint64), start_1)
    return (hashed_N >> np.uint64(64 - _BITS)).astype(np.float64) / float(2**_BITS)


def _hash_int(value_N: NDArray[np.uint64], seed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """xxHash64 of 32-bit values; for Spark it is the seed of the next column's hash. Sums wrap on purpose."""
    first, second, third, _, fifth = map(np.uint64, _PRIMES)
    hashed_N = (seed_N + fifth + np.uint64(4)) ^ (value_N * first)
    return _mixed(_rotated(hashed_N, 23) * second + third)


def _hash_long(value_N: NDArray[np.uint64], seed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """xxHash64 of 64-bit values."""
    first, second, _, fourth, fifth = map(np.uint64, _PRIMES)
    hashed_N = (seed_N + fifth + np.uint64(8)) ^ (_rotated(value_N * second, 31) * first)
    return _mixed(_rotated(hashed_N, 27) * first + fourth)


def _rotated(value_N: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (value_N << np.uint64(bits)) | (value_N >> np.uint64(64 - bits))


def _mixed(hashed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    _, second, third, _, _ = map(np.uint64, _PRIMES)
    hashed_N = (hashed_N ^ (hashed_N >> np.uint64(33))) * second
    hashed_N = (hashed_N ^ (hashed_N >> np.uint64(29))) * third
    return hashed_N ^ (hashed_N >> np.uint64(32))
