"""Applies an H2O model (MOJO) without H2O and without Java: its booster, read by the package xgboost.

A row becomes what ``hex.genmodel.algos.xgboost`` makes of it: a column for each level of a category and one
for a missing value, then the numbers. In a sparse model the trees see a 0 as missing.

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

from sparkgpu.core.errors import TrialError
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import Feature, TableSchema
from sparkgpu.h2o.booster_bytes import booster_as_ubjson
from sparkgpu.h2o.mojo_file import BOOSTER, Description, read_description
from sparkgpu.trees.boosting import both_classes

_CHUNK_VALUES = 4_000_000


@dataclass(frozen=True, kw_only=True)
class _Codes:
    """A categorical feature: its place among the codes, and H2O's number of each of our codes.

    The last element is for a missing value, and for a level that H2O never saw: NaN.
    """

    place: int
    number_L: NDArray[np.float32]


class BoosterModel:
    """A fitted model of H2O (`sparkgpu.trials.engine.Model`)."""

    def __init__(self, file: Path, schema: TableSchema) -> None:
        """Raises `TrialError` if the model's trees cannot be read."""
        self._schema = schema
        with zipfile.ZipFile(file) as mojo:
            self._described = read_description(mojo)
            booster = mojo.read(BOOSTER)
        try:
            self._booster = xgboost.Booster(model_file=bytearray(booster_as_ubjson(booster)))
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise TrialError(f"{file}: the trees of this model cannot be read ({error}).") from None
        self._columns = self.columns_of(self._described, schema)

    @staticmethod
    def columns_of(described: Description, schema: TableSchema) -> list[int | _Codes]:
        """For each feature of H2O: its place among the numbers, or how its codes become H2O's numbers."""
        numeric = {feature.name: place for place, feature in enumerate(schema.numeric)}
        coded = {feature.name: place for place, feature in enumerate(schema.categorical)}
        levels = {feature.name: feature for feature in schema.categorical}
        return [
            numeric[name]
            if name in numeric
            else _Codes(place=coded[name], number_L=_numbers(levels[name], described.domains[name]))
            for name in described.features
        ]

    @property
    def described(self) -> Description:
        """How a row becomes the booster's columns."""
        return self._described

    def booster_json(self) -> bytes:
        """The booster as XGBoost's JSON."""
        return bytes(self._booster.save_raw("json"))

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C)."""
        size = max(1_024, _CHUNK_VALUES // self._described.width)
        parts = [
            self._booster.inplace_predict(self.matrix(rows.part(slice(begin, begin + size))))
            for begin in range(0, len(rows.row_id_N), size)
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
        for name in described.features[: described.num_one_hot]:
            names += [f"{name} = {word}" for word in described.domains[name]] + [f"{name} is missing"]
        names += described.features[described.num_one_hot :]
        booster = self._booster.copy()
        # Unique, and without the letters that xgboost refuses.
        booster.feature_names = [f"{place} {re.sub(r'[][<]', '_', name)}" for place, name in enumerate(names)]
        encoding = {
            "features": [{"name": name, "words": described.domains.get(name)} for name in described.features],
            "one_hot": described.features[: described.num_one_hot],
            "sparse": described.sparse,
        }
        booster.set_attr(encoding=json.dumps(encoding))
        booster.save_model(file)

    def matrix(self, rows: Rows) -> NDArray[np.float32]:
        """The rows (N, T) as the booster's columns; NaN is missing."""
        described = self._described
        found_NT = np.full(
            (len(rows.row_id_N), described.width), np.nan if described.sparse else 0.0, dtype=np.float32
        )
        every_N = np.arange(len(rows.row_id_N))
        for place, column in enumerate(self._columns):
            if isinstance(column, _Codes):
                value_N = column.number_L[rows.codes_NK[:, column.place]]
            else:
                value_N = rows.numeric_NF[:, column]
            if place < described.num_one_hot:
                begin, end = described.offsets[place], described.offsets[place + 1]
                hot_N = np.where(np.isnan(value_N), end - 1, begin + value_N).astype(np.int64)
                found_NT[every_N, hot_N] = 1.0
            else:
                found_NT[:, described.offsets[-1] + place - described.num_one_hot] = value_N
        numbers_NM = found_NT[:, described.offsets[-1] :]
        numbers_NM[np.isinf(numbers_NM)] = np.nan  # as H2O trained on them
        if described.sparse:
            numbers_NM[numbers_NM == 0.0] = np.nan
        return found_NT


def _numbers(feature: Feature, words: tuple[str, ...]) -> NDArray[np.float32]:
    number = {word: place for place, word in enumerate(words)}
    found = [number.get(level, np.nan) for level in feature.levels]
    return np.array([*found, np.nan], dtype=np.float32)
