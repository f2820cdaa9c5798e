"""Groups of rows on which a model is worse than on all others, beyond chance.

A segment is a level of a category, a range of a number, or the rows where one is missing. Looking at many
segments finds some bad ones by chance, so the interval of each is as wide as their number asks for
(Bonferroni): of clean data, one report in twenty names any segment.

Limits: one feature at a time; a segment can be bad because its rows are hard for every model.

N rows, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import BOOLEANS, TableSchema
from sparkgpu.core.words import value_text
from sparkgpu.score.rows import FloatArray, Task, checked

LEAST_ROWS = 50
"""A smaller segment is not judged: its mean loss is not close to normal."""

_RANGES = 4
_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """The rows cut into named groups: `code_N` is the place of each row's name in `names`."""

    names: Sequence[str]
    code_N: NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A group of rows, and the mean loss there and on all other rows.

    The loss is log loss for classes and RMSE in the target's unit for a regression. `gap` is the lower end
    of the interval of the difference of the mean losses (squared errors for a regression): above 0, the
    segment is worse beyond chance. `interval` is that of the loss there, as wide as for the difference.
    """

    name: str
    rows: int
    loss: float
    loss_elsewhere: float
    gap: float
    interval: tuple[float, float]


def judged(
    task: Task, label_N: Any, prediction: Any, groupings: Iterable[Grouping], *, weight_N: Any = None
) -> tuple[Segment, ...]:
    """Every segment that is large enough, worse than the other rows or not.

    `prediction` holds probabilities (N, C) or values (N,). Raises the errors of `rows.checked`.
    """
    loss_M = checked(task, label_N, prediction, weight_N).loss_N()  # which leaves out rows without weight
    counted_N = np.ones(len(loss_M)) if weight_N is None else np.asarray(weight_N, dtype=np.float64)
    return of_losses(loss_M, groupings, counted_N, root=task == "regression")


def of_losses(
    loss_M: FloatArray, groupings: Iterable[Grouping], weight_N: FloatArray, *, root: bool = False
) -> tuple[Segment, ...]:
    """As `judged`, of any loss of the M rows with a weight above 0; `root` shows means as their roots."""
    is_counted_N = weight_N > 0
    found = [
        segment
        for grouping in groupings
        for segment in _segments(grouping, is_counted_N, loss_M, weight_N[is_counted_N])
    ]
    reach = NormalDist().inv_cdf(1 - (1 - _LEVEL) / (2 * max(len(found), 1)))
    segments = []
    for name, count, (mean, error), (mean_elsewhere, error_elsewhere) in found:
        shown = (mean, mean_elsewhere, max(mean - reach * error, 0.0), mean + reach * error)
        loss, elsewhere, low, high = map(math.sqrt, shown) if root else shown
        gap = mean - mean_elsewhere - reach * math.hypot(error, error_elsewhere)
        segments.append(
            Segment(name=name, rows=count, loss=loss, loss_elsewhere=elsewhere, gap=gap, interval=(low, high))
        )
    return tuple(segments)


_Mean = tuple[float, float]
"""A mean and its standard error."""


def _segments(
    grouping: Grouping, is_counted_N: NDArray[np.bool_], loss_N: FloatArray, weight_N: FloatArray
) -> Iterator[tuple[str, int, _Mean, _Mean]]:
    """The segments that are large enough: name, rows, and the mean loss inside and outside."""
    codes, code_N = len(grouping.names), grouping.code_N[is_counted_N]
    rows = np.bincount(code_N, minlength=codes)
    sums = [
        np.bincount(code_N, weights=values_N, minlength=codes)
        for values_N in (weight_N, weight_N**2, weight_N * loss_N, weight_N * loss_N**2)
    ]
    totals = [float(values.sum()) for values in sums]
    for code, name in enumerate(grouping.names):
        if LEAST_ROWS <= rows[code] <= len(loss_N) - LEAST_ROWS:
            inside = [float(values[code]) for values in sums]
            outside = [total - value for total, value in zip(totals, inside, strict=True)]
            if inside[0] > 0 and outside[0] > 0:
                yield name, int(rows[code]), _mean(*inside), _mean(*outside)


def mean_and_error(value_N: FloatArray, weight_N: FloatArray | None) -> _Mean:
    """The mean of values by the weights of their rows, and its standard error."""
    weight_N = np.ones(len(value_N)) if weight_N is None else weight_N
    return _mean(*(float((weight_N**a) @ (value_N**b)) for a, b in ((1, 0), (2, 0), (1, 1), (1, 2))))


def _mean(weight: float, weight_squares: float, total: float, squares: float) -> _Mean:
    mean = total / weight
    variance = max(squares / weight - mean * mean, 0.0)
    return mean, math.sqrt(variance * weight_squares) / weight


def groupings_of(schema: TableSchema, features: Rows) -> list[Grouping]:
    """The rows by each feature that is a column of the user's."""
    return [
        *(
            by_level(feature.title, BOOLEANS, np.nan_to_num(value_N, nan=-1).astype(int))
            if feature.is_boolean
            else by_range(feature.title, value_N.astype(np.float64))
            for feature, value_N in zip(schema.numeric, features.numeric_NF.T, strict=True)
            if not feature.is_derived and not feature.is_text
        ),
        *(
            by_level(feature.title, feature.levels, features.codes_NK[:, place])
            for place, feature in enumerate(schema.categorical)
        ),
    ]


def by_level(title: str, levels: Sequence[str], code_N: NDArray[np.integer[Any]]) -> Grouping:
    """A group for each level; code -1 is missing."""
    return Grouping(
        names=[*(f"{title} = {level}" for level in levels), f"{title} is missing"],
        code_N=np.where(code_N < 0, len(levels), code_N),
    )


def by_range(title: str, value_N: FloatArray) -> Grouping:
    """Four ranges with about as many rows each, or fewer where values repeat; NaN is missing."""
    is_missing_N = np.isnan(value_N)
    there = value_N[~is_missing_N]
    if not len(there):
        return Grouping(names=[f"{title} is missing"], code_N=np.zeros(len(value_N), dtype=np.int64))
    cuts = np.unique(np.quantile(there, np.arange(1, _RANGES) / _RANGES, method="higher"))
    cuts = cuts[cuts > there.min()]
    ends = [value_text(float(cut), 1e4) for cut in cuts]
    names = [f"{title} below {ends[0]}"] if ends else [f"{title} is there"]
    names += [f"{title} from {low} to {high}" for low, high in pairwise(ends)]
    names += [f"{title} from {ends[-1]} on"] if ends else []
    code_N = np.searchsorted(cuts, value_N, side="right")
    return Grouping(names=[*names, f"{title} is missing"], code_N=np.where(is_missing_N, len(names), code_N))
