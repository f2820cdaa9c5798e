"""Looks up the mean targets of levels (`sparkgpu.prepare.target_means`). pyarrow and numpy only.

N rows, L levels, P parts, V values per level, X rows of counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import Feature

_PRIOR_ROWS = 10.0  # so many rows with the overall mean stand beside a level's own (Micci-Barreca 2001)
FOLDER = "target_means"
"""Its folder in ``table/``, with one file for each column."""


class LevelMeans:
    """The means of the levels in a file, for some new features. Levels with a single row count as unknown."""

    def __init__(self, file: Path, features: Sequence[str]) -> None:
        self._features = features
        counted = pq.read_table(file)
        rows_X = as_numpy(counted["rows"]).astype(np.float64)
        part_X = as_numpy(counted["part"])
        values = [name for name in counted.column_names if name not in ("level", "part", "rows")]
        value_XV = np.stack([as_numpy(counted[name]) for name in values], axis=1)
        self._prior_V = value_XV.sum(axis=0) / rows_X.sum()
        level_X = counted["level"].combine_chunks().dictionary_encode()
        code_X = as_numpy(level_X.indices.fill_null(-1))
        known_X = code_X >= 0
        shape = (
            len(level_X.dictionary) + 1,
            1 + part_X.max(),
        )  # the last for unknown levels
        place_X = (code_X[known_X], part_X[known_X])
        self._rows_LP = np.zeros(shape)
        np.add.at(self._rows_LP, place_X, rows_X[known_X])
        self._value_LPV = np.zeros((*shape, len(values)))
        np.add.at(self._value_LPV, place_X, value_XV[known_X])
        self._levels = level_X.dictionary
        self._rows_L = self._rows_LP.sum(axis=1)
        self._value_LV = self._value_LPV.sum(axis=1)

    def columns(self, texts: pa.Array, part_N: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """The new features of rows with these levels; `part_N` is -1 for a row outside the training rows."""
        code_N = as_numpy(pc.index_in(texts, value_set=self._levels).fill_null(-1))
        rows_N = self._rows_L[code_N]
        value_NV = self._value_LV[code_N]
        is_train_N = part_N >= 0
        own = (code_N[is_train_N], part_N[is_train_N])
        rows_N[is_train_N] -= self._rows_LP[own]
        value_NV[is_train_N] -= self._value_LPV[own]
        mean_NV = (value_NV + _PRIOR_ROWS * self._prior_V) / (rows_N + _PRIOR_ROWS)[:, None]
        return dict(zip(self._features, mean_NV.astype(np.float32).T, strict=True))

    def by_level(self) -> tuple[list[str], dict[str, list[float]]]:
        """The levels, and the values of each new feature: one for each level, the last for any other."""
        texts = pa.concat_arrays([self._levels, pa.nulls(1, self._levels.type)])
        found = self.columns(texts, np.full(len(texts), -1))
        return self._levels.to_pylist(), {name: values.tolist() for name, values in found.items()}


def load_means(table: Path, features: Sequence[Feature]) -> dict[str, LevelMeans]:
    """The means in the folder of a table, by the name of the feature that has the levels."""
    made: dict[str, list[str]] = {}
    for feature in features:
        if feature.means_of is not None:
            made.setdefault(feature.means_of, []).append(feature.name)
    return {name: LevelMeans(means_file(table, name), new) for name, new in made.items()}


def means_file(table: Path, feature: str) -> Path:
    """Where the counts behind the means of a feature's levels are."""
    return table / FOLDER / f"{feature}.parquet"
