"""How strongly two columns belong together, as one number from 0 to 1 for each kind of pair.

Two numbers: Spearman's rank correlation without its sign, over the rows that have both. Two categories:
Cramér's V with Bergsma's correction (2013), since the plain one grows with the number of levels. A number and
a category: the correlation ratio of the number's ranks, with Kelley's correction (epsilon squared, 1935) for
the same reason.

Limits: evenly spaced training rows, fewer where there are many columns. N rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.profile import Associations
from sparkgpu.score.profile.columns import Column

MOST_COLUMNS = 30
"""A picture of more columns cannot be read."""

_MOST_ROWS = 10_000
_MOST_CELLS = 4_000_000
_FEWEST_ROWS = 20


class Ranked:
    """A column's training rows as ranks (NaN where missing) or as codes (-1 where missing)."""

    def __init__(self, column: Column, every: int) -> None:
        from scipy.stats import rankdata

        self.is_number = column.kind == "numeric"
        values_N = column.values["train"][::every]
        self.values_N: NDArray[Any] = values_N
        if self.is_number:
            self.values_N = rankdata(values_N.astype(np.float64), nan_policy="omit")
            self.is_there_N = ~np.isnan(self.values_N)
        else:
            self.is_there_N = values_N >= 0


def row_step(rows: int, columns: int) -> int:
    """Every how many training rows are compared."""
    return -(-rows // min(_MOST_ROWS, max(_MOST_CELLS // max(columns, 1), 1_000)))


def association(a: Ranked, b: Ranked) -> float | None:
    """The measure of the pair's kinds; None if too few rows have both or one of them does not vary."""
    both_N = a.is_there_N & b.is_there_N
    if int(both_N.sum()) < _FEWEST_ROWS:
        return None
    a_N, b_N = a.values_N[both_N], b.values_N[both_N]
    if a_N.min() == a_N.max() or b_N.min() == b_N.max():
        return None
    if a.is_number and b.is_number:
        return min(abs(float(np.corrcoef(a_N, b_N)[0, 1])), 1.0)
    if a.is_number != b.is_number:
        return _correlation_ratio(a_N, b_N) if a.is_number else _correlation_ratio(b_N, a_N)
    return _cramers_v(a_N, b_N)


def _correlation_ratio(rank_N: NDArray[Any], code_N: NDArray[Any]) -> float | None:
    rows = len(rank_N)
    counts = np.bincount(code_N)
    means = np.bincount(code_N, weights=rank_N)[counts > 0] / counts[counts > 0]
    groups = len(means)
    if rows <= groups:
        return None
    total = float(((rank_N - rank_N.mean()) ** 2).sum())
    between = float((counts[counts > 0] * (means - rank_N.mean()) ** 2).sum())
    corrected = 1 - (total - between) / (rows - groups) * (rows - 1) / total
    return math.sqrt(min(max(corrected, 0.0), 1.0))


def _cramers_v(a_N: NDArray[Any], b_N: NDArray[Any]) -> float | None:
    rows = len(a_N)
    a_own, a_N = np.unique(a_N, return_inverse=True)
    b_own, b_N = np.unique(b_N, return_inverse=True)
    height, width = len(a_own), len(b_own)
    # Empty cells add nothing to the sum below, so that many levels do not need a table of all pairs.
    cells, counts = np.unique(a_N * width + b_N, return_counts=True)
    expected = np.bincount(a_N)[cells // width] * np.bincount(b_N)[cells % width] / rows
    phi_square = float((counts**2 / expected).sum()) / rows - 1
    corrected = max(phi_square - (height - 1) * (width - 1) / (rows - 1), 0.0)
    least = min(height - (height - 1) ** 2 / (rows - 1), width - (width - 1) ** 2 / (rows - 1)) - 1
    return min(math.sqrt(corrected / least), 1.0) if least > 0 else None


def associations(
    columns: Sequence[Column], target: Column, with_target: Sequence[float | None], every: int
) -> Associations:
    """All pairs of the columns that belong to the target most, in the table's order, and of the target."""
    strongest = sorted(range(len(columns)), key=lambda place: -(with_target[place] or 0.0))[:MOST_COLUMNS]
    shown = [*(columns[place] for place in sorted(strongest)), target]
    ranked = [Ranked(column, every) for column in shown]
    found: list[list[float | None]] = [[None] * len(shown) for _ in shown]
    for row, a in enumerate(ranked):
        found[row][row] = 1.0
        for place, b in enumerate(ranked[:row]):
            value = association(a, b)
            found[row][place] = found[place][row] = None if value is None else round(value, 4)
    titles = tuple(column.title for column in shown)
    return Associations(columns=titles, values=tuple(map(tuple, found)), rows=len(ranked[-1].values_N))
