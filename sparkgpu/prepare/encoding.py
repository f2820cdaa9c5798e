"""The user's columns as features, by pyarrow: the values that the Spark pipeline of the run gives.

For rows that come after training, and for whole tables where a run needs no JVM. A column may come in another
type that holds the same values: numbers as text, whole numbers as floats, dictionaries, timestamps in any
unit. A category that training never saw counts as missing (or as one of the rarer ones, where these became
one level), and so does a text that is no number in a column of numbers; both are counted. No pyspark.

N rows, F numeric features, K categorical features, L levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.rows import Rows, as_numpy
from sparkgpu.core.table.schema import OTHER_LEVEL, Feature, TableSchema
from sparkgpu.core.words import listed, nearest
from sparkgpu.prepare.column_values import (
    ISO_TIMESTAMP,
    TIMESTAMP,
    UnfitError,
    as_float64,
    booleans,
    comparable,
    decoded,
    is_plain_number,
    labels_of,
    num_unreadable,
    numbers,
    text_array,
    timestamps,
)
from sparkgpu.prepare.columns import is_number
from sparkgpu.prepare.pairs import fill_pairs
from sparkgpu.prepare.roles import FLOAT32_MAX
from sparkgpu.prepare.spelling import spelled
from sparkgpu.prepare.target_means import LevelMeans, load_means
from sparkgpu.prepare.texts import TextFeatures, load_texts
from sparkgpu.prepare.timestamps import TIME_PARTS


@dataclass(kw_only=True)
class Findings:
    """What was unusual in the rows so far, in values by column; `values` counts all that are not null."""

    values: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    too_large: Counter[str] = field(default_factory=Counter)

    def sentences(self) -> list[str]:
        """One for each kind, for the user."""
        found = []
        for counts, what in (
            (self.unknown, "that training never saw"),
            (self.unreadable, "that cannot be read"),
            (self.too_large, "that are infinite or beyond 3.4e38"),
        ):
            columns = [
                f"{name!r} ({number:,} of {self.values[name]:,})" for name, number in (+counts).most_common()
            ]
            if columns:
                found.append(f"values {what} count as missing: {listed(columns)}")
        return found


class Encoder:
    """Makes the rows of a table from the user's columns; `made` gives mean targets, and numbers of texts."""

    def __init__(
        self, schema: TableSchema, made: Mapping[str, LevelMeans | TextFeatures] | None = None
    ) -> None:
        self._schema = schema
        self._made = made or {}
        self._columns = {
            feature.source: feature.type or "" for feature in schema.features if feature.means_of is None
        }
        self._levels = {feature.name: _Levels(feature) for feature in schema.categorical}
        self.findings = Findings()

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that the features come from."""
        return tuple(self._columns)

    def check(self, names: Sequence[str], where: str) -> None:
        """Raise `DataError` if a column is absent, or there twice."""
        absent = [name for name in self._columns if name not in names]
        if absent:
            hint = nearest(absent[0], names) if len(absent) == 1 else ""
            raise DataError(
                f"{where}: the model needs {'column' if len(absent) == 1 else 'columns'} "
                f"{listed(map(repr, absent))}, which it does not have.{hint} Its columns: {listed(names)}."
            )
        twice = [name for name in self._columns if list(names).count(name) > 1]
        if twice:
            raise DataError(f"{where}: duplicate column names: {listed(twice)}. Give each column one name.")

    def rows(
        self,
        batch: pa.RecordBatch | pa.Table,
        *,
        first: int = 0,
        part_N: NDArray[np.int64] | None = None,
    ) -> Rows:
        """The rows of a batch with the columns of `check`; their ids count on from `first`, labels are 0.

        `part_N` are the parts of training rows, whose mean targets and estimates leave out their own. Raises
        `DataError` if a column has a type that cannot be read.
        """
        size = batch.num_rows
        numeric_NF = np.empty((size, len(self._schema.numeric)), dtype=np.float32)
        codes_NK = np.empty((size, len(self._schema.categorical)), dtype=np.int32)
        column_of = {
            name: spelled(_plain(batch.column(name)), kind, self._schema.dialect)
            for name, kind in self._columns.items()
        }
        place_of = {feature.name: place for place, feature in enumerate(self._schema.numeric)}
        self.findings.values.update({name: size - column.null_count for name, column in column_of.items()})
        timestamp_of: dict[str, pa.Array] = {}
        for feature in self._schema.numeric:
            if feature.is_derived or feature.is_text:
                continue
            source, column = feature.source, column_of[feature.source]
            if feature.reading == "timestamp":
                if source not in timestamp_of:
                    if not is_number(feature.type or "") and is_plain_number(column.type):
                        column = column.cast(pa.string())  # where training had dates, 20241231 is no second
                    form = TIMESTAMP if feature.type == "string" else ISO_TIMESTAMP
                    timestamp_of[source] = _read(feature, timestamps, column, form)
                    self.findings.unreadable[source] += num_unreadable(column, timestamp_of[source])
                values = TIME_PARTS[feature.part or ""].of(timestamp_of[source])
            else:
                values = _read(feature, booleans if feature.reading == "boolean" else numbers, column)
                self.findings.unreadable[source] += num_unreadable(column, values)
            value_N = as_float64(values)  # rounded to 32 bits once, as Spark's vectors are
            is_large_N = np.abs(value_N) > FLOAT32_MAX
            self.findings.too_large[source] += int(is_large_N.sum())
            numeric_NF[:, place_of[feature.name]] = np.where(is_large_N, np.nan, value_N)
        fill_pairs(self._schema, numeric_NF)
        for place, feature in enumerate(self._schema.categorical):
            codes = self._levels[feature.name].codes
            codes_NK[:, place], unknown = _read(feature, codes, column_of[feature.source])
            self.findings.unknown[feature.source] += unknown
        part_N = np.full(size, -1) if part_N is None else part_N
        feature_of = {feature.name: feature for feature in self._schema.features}
        for own, made in self._made.items():
            for name, own_N in _read(feature_of[own], made.columns, column_of, part_N).items():
                numeric_NF[:, place_of[name]] = own_N
        return Rows(
            row_id_N=np.arange(first, first + size, dtype=np.int64),
            label_N=np.zeros(size, dtype=np.int64 if self._schema.classes else np.float64),
            weight_N=None,
            numeric_NF=numeric_NF,
            codes_NK=codes_NK,
        )


def load_made(
    table: Path, features: Sequence[Feature], *, past: bool = False
) -> dict[str, LevelMeans | TextFeatures]:
    """What gives an encoder mean targets and numbers of texts, from the folder of a table."""
    return {**load_means(table, features, past=past), **load_texts(table, features)}


def labels(column: pa.Array | pa.ChunkedArray, schema: TableSchema) -> NDArray[Any]:
    """The labels in a column of targets: class codes, -1 for none, or values, NaN for none.

    Raises `DataError` if the column has a type that cannot be read.
    """
    try:
        kind = schema.target_type or "string"
        return labels_of(spelled(_plain(column), kind, schema.dialect), schema.classes, kind)
    except UnfitError as error:
        raise DataError(
            f"the target {schema.target!r} is of type {error}, which cannot be read. Leave it out."
        ) from None


def _read(feature: Feature, read: Callable[..., Any], *columns: Any) -> Any:
    """What `read` makes of a feature's column; a type that it refuses becomes one sentence."""
    try:
        return read(*columns)
    except UnfitError as error:
        wanted = {"number": "numbers", "boolean": "true or false", "timestamp": "timestamps"}
        raise DataError(
            f"column {feature.source!r} is of type {error}; the model needs "
            f"{wanted.get(feature.reading or '', 'text')} there. Convert it."
        ) from None


class _Levels:
    """The codes of a categorical feature, found by the values of its levels in the source's own type."""

    def __init__(self, feature: Feature) -> None:
        assert feature.type is not None
        self._type = feature.type
        self._other = feature.levels.index(OTHER_LEVEL) if OTHER_LEVEL in feature.levels else -1
        self._values_L = comparable(text_array(feature.levels), feature.type)

    def codes(self, column: pa.Array) -> tuple[NDArray[np.int32], int]:
        """The code of each row, and how many values training never saw."""
        column = decoded(column)
        value_N = comparable(column, self._type)
        found = pc.index_in(value_N, value_set=self._values_L, skip_nulls=True)
        codes_N = as_numpy(found.fill_null(-1)).copy()
        if self._other >= 0:  # as is a text that is no value of the source's type
            is_there_N = as_numpy(column.is_valid().cast(pa.int8())) == 1
            codes_N[is_there_N & (codes_N < 0)] = self._other
        return codes_N, max(int((codes_N < 0).sum()) - column.null_count, 0)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array; without a value its type says nothing."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.nulls(len(whole)) if whole.null_count == len(whole) else whole
