"""Reads evenly spaced rows of a split, and makes fingerprints of them.

Limits: of very large splits only evenly spaced row groups are read. Rows are equal if all features are, as
the engines see them: as 32-bit numbers and level codes.

N rows, F numeric features, K categorical features, W words of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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
    """The `rows` to look at of a split that has `total`, with the user's weights, if there are any."""

    total: int
    rows: Rows
    weight_N: FloatArray | None

    @property
    def size(self) -> int:
        return len(self.rows.label_N)

    @cached_property
    def words_NW(self) -> Print:
        """A word for each value of each row, (N, W): their sum is the fingerprint of the row.

        A row's fingerprint without one column is the sum less that column's word.
        """
        numbers_NF = (self.rows.numeric_NF + np.float32(0)).view(np.uint32)  # -0 is 0
        numbers_NF = np.where(np.isnan(self.rows.numeric_NF), np.uint32(0x7FC00000), numbers_NF)
        words = np.concatenate([numbers_NF, self.rows.codes_NK.view(np.uint32)], axis=1).astype(np.uint64)
        words += np.uint64(1)
        words *= _ODD
        words ^= words >> _SHIFT
        random = np.random.default_rng(0)
        words *= random.integers(0, 2**64, words.shape[1], dtype=np.uint64) | np.uint64(1)
        return words


def own_features(schema: TableSchema) -> TableSchema:
    """The schema without mean targets and estimates, of which training rows have others than equal rows."""
    return schema.with_features(
        feature for feature in schema.features if feature.means_of is None and feature.reading != "estimate"
    )


def read_sample(
    paths: RunPaths, schema: TableSchema, split: SplitName, *, width: int | None = None
) -> Sample | None:
    """Evenly spaced rows of a split, as many as of a table with `width` features (None: with its own).

    None if it has no rows. Raises `DataError` if it cannot be read.
    """
    features = max(width or len(schema.features), 1)
    groups = RowGroups(paths, schema, split)
    total = groups.rows
    if not total:
        return None
    groups.thinned(min(_MOST_READ_ROWS, max(_FEWEST, _MOST_READ_CELLS // features)))
    every = -(-groups.rows // min(_LOOKED_AT[split], max(_FEWEST, _MOST_CELLS // features)))
    kept: list[Rows] = []
    seen = 0
    for block in groups.blocks():
        rows = len(block.label_N)
        kept.append(block.part(np.arange(-seen % every, rows, every)))  # a copy: not the whole block
        seen += rows
    rows_kept = joined(kept)
    return Sample(total=total, rows=rows_kept, weight_N=user_weights(rows_kept, schema))
