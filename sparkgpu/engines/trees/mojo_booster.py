"""Applies an H2O model (MOJO) without H2O and without Java: its booster, read by the package xgboost.

A row becomes what ``hex.genmodel.algos.xgboost`` makes of it: a column for each level of a category and one
for a missing value, then the numbers. In a sparse model a 0 is not stored, so the trees see it as missing.

N rows, T columns of the booster, C classes.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xgboost
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparkgpu.engines.trees.booster_bytes import booster_as_json
from sparkgpu.engines.trees.boosting import both_classes
from sparkgpu.engines.trees.mojo_description import read_description
from sparkgpu.errors import TrialError
from sparkgpu.table.rows import Rows
from sparkgpu.table.schema import Feature, TableSchema

_CHUNK_ROWS = 16_384


@dataclass(frozen=True, kw_only=True)
class _Words:
    """A categorical feature: its place among the codes, and H2O's number of each of our codes.

    The last element is for a missing value, and for a level that H2O never saw: NaN.
    """

    place: int
    number_L: NDArray[np.float32]


class BoosterModel:
    """A fitted model of H2O (`sparkgpu.engines.engine.Model`)."""

    def __init__(self, file: Path, schema: TableSchema) -> None:
        """Raises `TrialError` if the model's trees cannot be read."""
        self._schema = schema
        with zipfile.ZipFile(file) as mojo:
            self._described = read_description(mojo)
            booster = mojo.read("boosterBytes")
        try:
            self._booster = xgboost.Booster(model_file=bytearray(booster_as_json(booster)))
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise TrialError(f"{file}: the trees of this model cannot be read ({error}).") from None
        numeric = {feature.name: place for place, feature in enumerate(schema.numeric)}
        coded = {feature.name: place for place, feature in enumerate(schema.categorical)}
        levels = {feature.name: feature for feature in schema.categorical}
        self._columns: list[int | _Words] = [
            numeric[name]
            if name in numeric
            else _Words(place=coded[name], number_L=_numbers(levels[name], self._described.domains[name]))
            for name in self._described.features
        ]

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C)."""
        size = len(rows.row_id_N)
        parts = [
            self._booster.inplace_predict(self._matrix(rows, slice(begin, begin + _CHUNK_ROWS)))
            for begin in range(0, size, _CHUNK_ROWS)
        ]
        found = np.concatenate(parts) if parts else np.empty((0, self._schema.num_outputs))
        return both_classes(found, self._schema)

    def save(self, file: Path) -> None:
        """Write the booster for the package xgboost, its columns named after features and levels.

        Its attribute ``encoding`` tells as JSON how a row becomes these columns: the features in order, each
        with its words; those of ``one_hot`` have a column for each word and one for missing, the others the
        place of their word. In a ``sparse`` model a 0 counts as missing.
        """
        described = self._described
        names = []
        for name in described.features[: described.num_words]:
            names += [f"{name} = {word}" for word in described.domains[name]] + [f"{name} is missing"]
        names += described.features[described.num_words :]
        booster = self._booster.copy()
        # Unique, and without the letters that xgboost refuses.
        booster.feature_names = [f"{place} {re.sub(r'[][<]', '_', name)}" for place, name in enumerate(names)]
        encoding = {
            "features": [{"name": name, "words": described.domains.get(name)} for name in described.features],
            "one_hot": described.features[: described.num_words],
            "sparse": described.sparse,
        }
        booster.set_attr(encoding=json.dumps(encoding))
        booster.save_model(file)

    def matrix(self, rows: Rows) -> csr_matrix:
        """The rows (N, T) as the booster's columns; what is not stored is missing."""
        return self._matrix(rows, slice(None))

    def _matrix(self, rows: Rows, chunk: slice) -> csr_matrix:
        """The rows as the booster's columns; whatever is not stored is missing."""
        described = self._described
        size = len(rows.row_id_N[chunk])
        column_NT = np.empty((size, len(self._columns)), dtype=np.int32)
        value_NT = np.ones((size, len(self._columns)), dtype=np.float32)
        for place, column in enumerate(self._columns):
            if isinstance(column, _Words):
                value_N = column.number_L[rows.codes_NK[chunk, column.place]]
            else:
                value_N = rows.numeric_NF[chunk, column]
            if place < described.num_words:
                begin, end = described.offsets[place], described.offsets[place + 1]
                column_NT[:, place] = np.where(np.isnan(value_N), end - 1, begin + np.nan_to_num(value_N))
            else:
                column_NT[:, place] = described.offsets[-1] + place - described.num_words
                value_NT[:, place] = value_N
        if not described.sparse:
            return self._dense(column_NT, value_NT)
        is_stored_NT = ~(np.isnan(value_NT) | (value_NT == 0))
        ends = np.concatenate([[0], is_stored_NT.sum(axis=1).cumsum()])
        return csr_matrix(
            (value_NT[is_stored_NT], column_NT[is_stored_NT], ends), shape=(size, described.width)
        )

    def _dense(self, column_NT: NDArray[np.int32], value_NT: NDArray[np.float32]) -> csr_matrix:
        """The same with a stored 0 where a category has another level."""
        words = self._described.offsets[-1]
        dense = np.zeros((len(column_NT), self._described.width), dtype=np.float32)
        np.put_along_axis(dense, column_NT, value_NT, axis=1)
        is_stored = ~np.isnan(dense)
        is_stored[:, :words] = True
        ends = np.concatenate([[0], is_stored.sum(axis=1).cumsum()])
        return csr_matrix((dense[is_stored], np.nonzero(is_stored)[1], ends), shape=dense.shape)


def _numbers(feature: Feature, words: tuple[str, ...]) -> NDArray[np.float32]:
    number = {word: place for place, word in enumerate(words)}
    found = [number.get(level, np.nan) for level in feature.levels]
    return np.array([*found, np.nan], dtype=np.float32)
