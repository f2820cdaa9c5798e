"""Reads an evenly spaced part of a split, and a fingerprint of every row on the way.

Limits: of very large splits only evenly spaced row groups are read. Rows are equal if all features are, as
the engines see them: as 32-bit numbers and level codes.

N rows looked at, R rows read, F numeric features, K categorical features, W words of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import RowGroups, Rows, joined
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.score.predictions import user_weights
from sparkgpu.score.rows import FloatArray

_LOOKED_AT: dict[SplitName, int] = {"train": 100_000, "valid": 50_000, "test": 50_000}
_FEWEST = 2_000
_MOST_CELLS = 20_000_000  # 80 MB
_MOST_READ_ROWS = 1_000_000
_MOST_READ_CELLS = 60_000_000  # about two seconds

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

Print = NDArray[np.uint64]
"""Fingerprints of rows: equal rows have equal ones, and different rows hardly ever."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Rows of one split: `rows` to look at, and the label and fingerprint of each row that was read.

    `total` is the number of rows of the split; `weight_N` the user's weights, None if rows count equally.
    `varies_W` tells for each numeric feature, then for each categorical one, whether any rows that were read
    differ in it; a missing value differs from any other.
    """

    total: int
    rows: Rows
    weight_N: FloatArray | None
    print_R: Print
    label_R: NDArray[Any]
    varies_W: NDArray[np.bool_]

    @property
    def is_whole(self) -> bool:
        """Whether every row of the split was read."""
        return len(self.print_R) == self.total


def own_features(schema: TableSchema) -> TableSchema:
    """The schema without the features that hold the mean targets of another one's levels."""
    kept = tuple(feature for feature in schema.features if feature.means_of is None)
    return schema.model_copy(update={"features": kept})


def read_sample(paths: RunPaths, schema: TableSchema, split: SplitName) -> Sample | None:
    """Evenly spaced rows of a split; None if it has no rows. Raises `DataError` if it cannot be read."""
    features = max(len(schema.features), 1)
    groups = RowGroups(paths, schema, split)
    total = sum(group.rows for group in groups.groups)
    if not total:
        return None
    groups.thinned(min(_MOST_READ_ROWS, max(_FEWEST, _MOST_READ_CELLS // features)))
    read = sum(group.rows for group in groups.groups)
    every = -(-read // min(_LOOKED_AT[split], max(_FEWEST, _MOST_CELLS // features)))
    kept: list[Rows] = []
    prints: list[Print] = []
    labels: list[NDArray[Any]] = []
    first_W: Print | None = None
    varies_W = np.zeros(len(schema.features), dtype=bool)
    begin = 0
    for block in groups.blocks():
        block_NW = words_NW(block)
        first_W = block_NW[0].copy() if first_W is None else first_W
        varies_W |= (block_NW != first_W).any(axis=0)
        prints.append(block_NW.sum(axis=1, dtype=np.uint64))
        labels.append(block.label_N)
        kept.append(block.part(np.arange(-begin % every, len(block.label_N), every)))  # not the whole block
        begin += len(block.label_N)
    rows = joined(kept)
    return Sample(
        total=total,
        rows=rows,
        weight_N=user_weights(rows, schema),
        print_R=np.concatenate(prints),
        label_R=np.concatenate(labels),
        varies_W=varies_W,
    )


def words_NW(rows: Rows) -> Print:
    """A word for each value of each row, (N, W): their sum is the fingerprint of the row.

    A row's fingerprint without one column is the sum less that column's word.
    """
    numbers_NF = (rows.numeric_NF + np.float32(0)).view(np.uint32)  # -0 is 0
    numbers_NF = np.where(np.isnan(rows.numeric_NF), np.uint32(0x7FC00000), numbers_NF)
    words = np.concatenate([numbers_NF, rows.codes_NK.view(np.uint32)], axis=1).astype(np.uint64)
    words += np.uint64(1)
    words *= _ODD
    words ^= words >> _SHIFT
    factors_W = np.random.default_rng(0).integers(0, 2**64, words.shape[1], dtype=np.uint64) | np.uint64(1)
    words *= factors_W
    return words
