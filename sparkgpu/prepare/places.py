"""Each row's place in [0, 1), a hash of the seed and the row's id: as a Spark column, and by numpy.

The hash is Spark's ``xxhash64``. numpy computes the same hash, so the training rows are known without a slow
first job in a new JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sparkgpu.prepare.xxhash import SPARK_SEED, hash_int, hash_long

if TYPE_CHECKING:
    from pyspark.sql import Column

_BITS = 53  # the bits of a double's mantissa


def place(seed: int, key: Column) -> Column:
    """The place of each row by its id or group `key`."""
    from pyspark.sql import functions as F

    hashed = F.xxhash64(F.lit(seed), key)
    return F.shiftrightunsigned(hashed, 64 - _BITS).cast("double") / F.lit(float(2**_BITS))


def places_of(seed: int, row_id_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """The places (N,) of rows with these ids, for a 31-bit seed."""
    assert 0 <= seed < 2**31
    start_1 = hash_int(np.array([seed], dtype=np.uint64), np.array([SPARK_SEED], dtype=np.uint64))
    hashed_N = hash_long(row_id_N.astype(np.uint64), start_1)
    return (hashed_N >> np.uint64(64 - _BITS)).astype(np.float64) / float(2**_BITS)
