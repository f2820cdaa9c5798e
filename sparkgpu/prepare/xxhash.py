"""Spark's ``xxhash64`` by numpy, value by value of a column; the hash of one column is the seed of the next.

N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# From xxHash64's specification: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
_PRIMES = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip
SPARK_SEED = 42
"""The seed of a row's first column."""


def hash_int(value_N: NDArray[np.uint64], seed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """xxHash64 of 32-bit values; for Spark it is the seed of the next column's hash. Sums wrap on purpose."""
    first, second, third, _, fifth = map(np.uint64, _PRIMES)
    hashed_N = (seed_N + fifth + np.uint64(4)) ^ (value_N * first)
    return _mixed(_rotated(hashed_N, 23) * second + third)


def hash_long(value_N: NDArray[np.uint64], seed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """xxHash64 of 64-bit values."""
    first, second, _, fourth, fifth = map(np.uint64, _PRIMES)
    hashed_N = (seed_N + fifth + np.uint64(8)) ^ (_rotated(value_N * second, 31) * first)
    return _mixed(_rotated(hashed_N, 27) * first + fourth)


def _rotated(value_N: Any, bits: int) -> NDArray[np.uint64]:
    found_N: NDArray[np.uint64] = (value_N << np.uint64(bits)) | (value_N >> np.uint64(64 - bits))
    return found_N


def _mixed(hashed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    _, second, third, _, _ = map(np.uint64, _PRIMES)
    hashed_N = (hashed_N ^ (hashed_N >> np.uint64(33))) * second
    hashed_N = (hashed_N ^ (hashed_N >> np.uint64(29))) * third
    return hashed_N ^ (hashed_N >> np.uint64(32))


def hash_bytes(value_NB: NDArray[np.uint8], seed_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """xxHash64 of texts (N, B) that are all B bytes long."""
    first, second, third, fourth, fifth = map(np.uint64, _PRIMES)
    size = value_NB.shape[1]
    word_NW = np.ascontiguousarray(value_NB[:, : size // 8 * 8]).view("<u8")
    stripes = size // 32
    hashed_N = seed_N + fifth
    if stripes:
        lanes = [seed_N + first + second, seed_N + second, seed_N, seed_N - first]
        for stripe in range(stripes):
            for lane in range(4):
                mixed_N = lanes[lane] + word_NW[:, 4 * stripe + lane] * second
                lanes[lane] = _rotated(mixed_N, 31) * first
        hashed_N = np.zeros_like(seed_N)
        for lane_N, bits in zip(lanes, (1, 7, 12, 18), strict=True):
            hashed_N = hashed_N + _rotated(lane_N, bits)
        for lane_N in lanes:
            hashed_N = (hashed_N ^ (_rotated(lane_N * second, 31) * first)) * first + fourth
    hashed_N = hashed_N + np.uint64(size)
    for word in range(4 * stripes, size // 8):
        hashed_N = hashed_N ^ (_rotated(word_NW[:, word] * second, 31) * first)
        hashed_N = _rotated(hashed_N, 27) * first + fourth
    done = size // 8 * 8
    if size - done >= 4:
        half_N = np.ascontiguousarray(value_NB[:, done : done + 4]).view("<u4")[:, 0].astype(np.uint64)
        hashed_N = _rotated(hashed_N ^ (half_N * first), 23) * second + third
        done += 4
    for place in range(done, size):
        hashed_N = _rotated(hashed_N ^ (value_NB[:, place].astype(np.uint64) * fifth), 11) * first
    return _mixed(hashed_N)
