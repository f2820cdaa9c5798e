"""Applies an H2O model (MOJO) without H2O and without Java: its booster, read by the package xgboost.

A row becomes what ``hex.genmodel.algos.xgboost`` makes of it: a column for each level of a category and one
for a missing value, then the numbers. In a sparse model the trees see a 0 as missing.

N rows, T columns of the booster, C classes.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import numpy as np
import xgboost
from numpy.typing import NDArray

from sparkgpu.core.errors import TrialError
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.h2o.booster_bytes import booster_as_ubjson
from sparkgpu.h2o.mojo_file import BOOSTER, Description, read_description
from sparkgpu.trees.boosting import both_classes

_CHUNK_VALUES = 4_000_000


class BoosterModel:
    """A fitted model of H2O (`sparkgpu.trials.engine.Model`); a row becomes its columns as `described`."""

    def __init__(self, described: Description, booster: xgboost.Booster, schema: TableSchema) -> None:
        self.described = described
        self.booster = booster
        self._schema = schema

    @classmethod
    def read(cls, file: Path, schema: TableSchema) -> BoosterModel:
        """The model in a MOJO. Raises `TrialError` if its trees cannot be read."""
        with zipfile.ZipFile(file) as mojo:
            described, booster = read_description(mojo), mojo.read(BOOSTER)
        try:
            found = xgboost.Booster(model_file=bytearray(booster_as_ubjson(booster)))
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise TrialError(f"{file}: the trees of this model cannot be read ({error}).") from None
        return cls(described, found, schema)

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C)."""
        size = max(1_024, _CHUNK_VALUES // self.described.width)
        parts = []
        for begin in range(0, len(rows.row_id_N), size):
            matrix_NT = matrix_of(rows.part(slice(begin, begin + size)), self.described, self._schema)
            parts.append(self.booster.inplace_predict(matrix_NT))
        found = np.concatenate(parts) if parts else np.empty((0, self._schema.num_outputs))
        return both_classes(found, self._schema)

    def contributions(self, rows: Rows) -> NDArray[np.float32]:
        """What each feature of the schema adds to the margin, and last the base (N, C or 1, features + 1)."""
        described = self.described
        matrix = xgboost.DMatrix(matrix_of(rows, described, self._schema))
        found_NGT = self.booster.predict(matrix, pred_contribs=True, strict_shape=True)
        numbers = range(described.offsets[-1], described.width)
        begins = [*described.offsets[: described.num_one_hot], *numbers, described.width]
        place = {name: number for number, name in enumerate(described.features)}
        order = [*(place[feature.name] for feature in self._schema.features), -1]
        return np.add.reduceat(found_NGT, begins, axis=2)[..., order]

    def named(self) -> xgboost.Booster:
        """The booster for the package xgboost, its columns named after features and levels."""
        described = self.described
        names = []
        for name in described.features[: described.num_one_hot]:
            names += [f"{name} = {word}" for word in described.domains[name]] + [f"{name} is missing"]
        names += described.features[described.num_one_hot :]
        booster = self.booster.copy()
        # Unique, and without the letters that xgboost refuses.
        booster.feature_names = [f"{place} {re.sub(r'[][<]', '_', name)}" for place, name in enumerate(names)]
        return booster


def matrix_of(rows: Rows, described: Description, schema: TableSchema) -> NDArray[np.float32]:
    """The rows (N, T) as the booster's columns; NaN is missing."""
    value_N = {feature.name: rows.numeric_NF[:, place] for place, feature in enumerate(schema.numeric)}
    for place, feature in enumerate(schema.categorical):
        number = {word: code for code, word in enumerate(described.domains[feature.name])}
        # The last is for a missing value, whose code is -1; a level that H2O never saw is one, too.
        number_L = np.array([*(number.get(level, np.nan) for level in feature.levels), np.nan], np.float32)
        value_N[feature.name] = number_L[rows.codes_NK[:, place]]
    found_NT = np.full(
        (len(rows.row_id_N), described.width), np.nan if described.sparse else 0.0, dtype=np.float32
    )
    every_N = np.arange(len(found_NT))
    hot, others = described.features[: described.num_one_hot], described.features[described.num_one_hot :]
    for name, begin, end in zip(hot, described.offsets, described.offsets[1:], strict=False):
        column_N = np.where(np.isnan(value_N[name]), end - 1, begin + value_N[name]).astype(np.int64)
        found_NT[every_N, column_N] = 1.0
    numbers_NM = found_NT[:, described.offsets[-1] :]
    for place, name in enumerate(others):
        numbers_NM[:, place] = value_N[name]
    numbers_NM[np.isinf(numbers_NM)] = np.nan  # as H2O trained on them
    if described.sparse:
        numbers_NM[numbers_NM == 0.0] = np.nan
    return found_NT
