"""The values at which a feature's dependence is computed, and where the rows lie.

N rows, P points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkgpu.explain.columns import Drawable
from sparkgpu.explain.messages import Grid
from sparkgpu.table.rows import Rows

MOST_POINTS = 20
_MOST_LEVELS = 12
_ENDS = (0.01, 0.99)  # beyond them lie too few rows or values to say anything
_MISSING = "(missing)"


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A grid as people see it: numbers or levels, deciles of the rows, shares of the levels."""

    at: tuple[float, ...] | tuple[str, ...]
    deciles: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()


def grid_of(drawable: Drawable, rows: Rows) -> tuple[Grid, Axis] | None:
    """Quantiles of a number, or the most frequent levels; None if all rows have the same value."""
    if drawable.kind == "numeric":
        return _of_numbers(drawable.places.numeric[0], rows)
    return _of_levels(drawable, rows)


def _of_numbers(place: int, rows: Rows) -> tuple[Grid, Axis] | None:
    value_N = rows.numeric_NF[:, place]
    value_N = value_N[np.isfinite(value_N)]
    found_P = np.unique(value_N)
    if len(found_P) > MOST_POINTS:
        # Where the rows are, and where else values are: nine rows of ten may have a 0. Only values that
        # occur, since between two whole numbers a model may jump where no row ever is.
        shares = np.linspace(*_ENDS, MOST_POINTS // 2)
        by_rows, by_values = (np.quantile(own, shares, method="nearest") for own in (value_N, found_P))
        found_P = np.unique(np.concatenate([by_rows, by_values]))
    if len(found_P) < 2:
        return None
    deciles = np.quantile(value_N, np.linspace(0.1, 0.9, 9))
    grid = Grid(numeric=((place, found_P),), codes=(), points=len(found_P))
    return grid, Axis(at=tuple(found_P.tolist()), deciles=tuple(deciles.tolist()))


def _of_levels(drawable: Drawable, rows: Rows) -> tuple[Grid, Axis] | None:
    """A level's mean targets come from a row that has it."""
    (place,) = drawable.places.codes
    code_N = rows.codes_NK[:, place]
    code_L, first_L, count_L = np.unique(code_N, return_index=True, return_counts=True)
    kept_P = np.sort(np.argsort(-count_L, kind="stable")[:_MOST_LEVELS])
    if len(kept_P) < 2:
        return None
    names = [*drawable.levels, _MISSING]  # code -1 is a missing value
    grid = Grid(
        numeric=tuple((own, rows.numeric_NF[first_L[kept_P], own]) for own in drawable.places.numeric),
        codes=((place, code_L[kept_P]),),
        points=len(kept_P),
    )
    shares = count_L[kept_P] / len(code_N)
    return grid, Axis(at=tuple(names[code] for code in code_L[kept_P]), shares=tuple(shares.tolist()))
