"""Each row's place in [0, 1): a hash (xxHash64) of the seed and the row's id, the same wherever the row is.

N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# From xxHash64's specification: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH = map(
    np.uint64,
    (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
_START = 42
_BITS = 53  # the bits of a double's mantissa


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
