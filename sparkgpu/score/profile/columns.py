"""One column of the table over its splits: its figures, its histogram, and its values in a few bins.

N rows, B bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.profile import ColumnProfile, LevelProfile, NumberProfile
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.score.profile.sample import Sample

_BINS = 64
_HISTOGRAM_BINS = 16
_TOP_LEVELS = 8


@dataclass(frozen=True, kw_only=True)
class Column:
    """A feature or the target: its values by split, as numbers (NaN is missing) or codes (-1 is missing)."""

    title: str
    kind: Literal["numeric", "categorical"]
    levels: tuple[str, ...]
    values: Mapping[SplitName, NDArray[Any]]

    def is_missing(self, split: SplitName) -> NDArray[np.bool_]:
        """Which rows of the split have no value, (N,)."""
        values_N = self.values[split]
        return np.isnan(values_N) if self.kind == "numeric" else values_N < 0

    def present(self, split: SplitName) -> NDArray[Any]:
        """The values that are there; of numbers only the finite ones."""
        values_N = self.values[split]
        return values_N[np.isfinite(values_N)] if self.kind == "numeric" else values_N[values_N >= 0]

    @cached_property
    def _cuts(self) -> NDArray[Any]:
        there = self.present("train")
        if not len(there):
            return there
        cuts = np.unique(np.quantile(there, np.arange(1, _BINS) / _BINS, method="higher"))
        return np.asarray(cuts[cuts > there.min()])

    @property
    def num_bins(self) -> int:
        """The last bin is of missing values."""
        return (len(self._cuts) + 1 if self.kind == "numeric" else len(self.levels)) + 1

    def bins(self, split: SplitName) -> NDArray[np.int64]:
        """Each row's bin, (N,): a level, or one of up to 64 ranges with about as many training rows each."""
        found = self.values[split]
        if self.kind == "numeric":
            found = np.searchsorted(self._cuts, found, side="right")
        return np.where(self.is_missing(split), self.num_bins - 1, found).astype(np.int64)


def feature_columns(schema: TableSchema, samples: Mapping[SplitName, Sample]) -> Iterator[Column]:
    """The features in the schema's order."""
    places = {feature.name: place for place, feature in enumerate((*schema.numeric, *schema.categorical))}
    for feature in schema.features:
        place, values = places[feature.name], {}
        for split, sample in samples.items():
            is_number, rows = feature.kind == "numeric", sample.rows
            own_N = rows.numeric_NF[:, place] if is_number else rows.codes_NK[:, place - len(schema.numeric)]
            values[split] = np.ascontiguousarray(own_N)
        yield Column(title=feature.title, kind=feature.kind, levels=feature.levels, values=values)


def target_column(schema: TableSchema, samples: Mapping[SplitName, Sample]) -> Column:
    """The target: a number, or the classes as levels."""
    return Column(
        title=schema.target,
        kind="categorical" if schema.classes else "numeric",
        levels=schema.classes,
        values={split: sample.rows.label_N for split, sample in samples.items()},
    )


def described(
    column: Column, *, with_target: float | None = None, alone: float | None = None
) -> ColumnProfile:
    """The figures of a column over the training rows."""
    there = column.present("train")
    numbers: NumberProfile | None = None
    levels: tuple[LevelProfile, ...] = ()
    if column.kind == "numeric":
        distinct = len(np.unique(there))
        numbers = _numbers(there.astype(np.float64)) if distinct else None
    else:
        counts = np.bincount(there, minlength=len(column.levels))
        distinct = int((counts > 0).sum())
        top = np.argsort(-counts, kind="stable")[: min(_TOP_LEVELS, distinct)]
        levels = tuple(
            LevelProfile(level=column.levels[code], share=float(counts[code] / len(there))) for code in top
        )
    return ColumnProfile(
        column=column.title, kind=column.kind, missing=float(column.is_missing("train").mean()),
        distinct=distinct, numbers=numbers, levels=levels, with_target=with_target, alone=alone,
    )  # fmt: skip


def _numbers(value_N: NDArray[np.float64]) -> NumberProfile:
    least, low, *quartiles, high, greatest = np.quantile(
        value_N, [0, 0.01, 0.25, 0.5, 0.75, 0.99, 1]
    ).tolist()
    if low == high:
        low, high = least, greatest
    bins = _HISTOGRAM_BINS
    if high - low < bins and (value_N == np.floor(value_N)).all():
        low, high = np.ceil(low) - 0.5, np.floor(high) + 0.5
        bins = round(high - low)
    counts, _ = np.histogram(value_N.clip(low, high), bins, (low, high))
    first, median, third = quartiles
    std = float(value_N.std(ddof=1)) if len(value_N) > 1 else 0.0
    return NumberProfile(
        least=least, quartile_1=first, median=median, quartile_3=third, greatest=greatest,
        mean=float(value_N.mean()), std=std, low=low, high=high,
        counts=tuple(counts.tolist()),
    )  # fmt: skip
