"""How the predictions depend on the leading features: partial dependence, of all models on the same rows.

N rows, P points of a grid, L levels, G classes or 1.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.explanations import ColumnImportance, Dependence
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import BOOLEANS, Feature, TableSchema
from sparkgpu.core.words import listed
from sparkgpu.predict.explain.columns import Column, Places
from sparkgpu.predict.explain.models import AskedModel, Models
from sparkgpu.predict.explain.sample import Sample
from sparkgpu.score.rows import FloatArray

DRAWN = 6
"""The leading columns that are drawn."""

DRAWN_ROWS = 200
_MOST_POINTS = 20
MOST_ASKED = DRAWN * _MOST_POINTS * DRAWN_ROWS
"""The rows that a model is asked about, where no column has several parts."""

_MOST_LEVELS = 12
_ENDS = (0.01, 0.99)  # beyond them lie too few rows or values to say anything
_MISSING = "(missing)"


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """The values of one feature that all rows get, one after the other, and how people see them.

    The rows `from_P` of the sample have them in the columns `places`. `at` are numbers or levels; `deciles`
    or `shares` tell where the rows lie.
    """

    places: Places
    from_P: NDArray[np.int64]
    at: tuple[float, ...] | tuple[str, ...]
    deciles: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()


def dependence_of(
    own: Models,
    columns: Sequence[Column],
    importances: Sequence[ColumnImportance],
    pair: tuple[str, str] | None,
) -> tuple[Dependence, ...]:
    """The curves of the leading columns; of a timestamp, that of its part that moves them most."""
    by_name = {column.name: column for column in columns}
    leading = [one.column for one in importances[:DRAWN]]
    found: dict[str, tuple[float, Dependence]] = {}
    varying = set()
    for name in leading:
        for feature, places in by_name[name].features:
            grid = _grid(feature, places, own.sample.rows)
            if grid is None:
                continue
            varying.add(name)
            if curves := _curves(own, grid):
                moves, dependence = _one(own.schema, name, feature, grid, curves, pair)
                if name not in found or moves > found[name][0]:
                    found[name] = moves, dependence
    if late := [name for name in leading if name in varying and name not in found]:
        own.notes.append(f"There was no time to draw {listed(late)}.")
    if flat := [name for name in leading if name not in varying]:
        own.notes.append(f"Not drawn, since all rows of the sample have the same value: {listed(flat)}.")
    return tuple(dependence for _, dependence in found.values())


def _curves(own: Models, grid: _Grid) -> dict[str, FloatArray]:
    """By model: the mean predictions along the grid (P, G), if there is time for them."""
    asked = len(grid.at) * DRAWN_ROWS
    return {
        model.name: _curve(model, own.sample, grid)
        for model in own.models
        if time.monotonic() + asked * model.row_s <= own.until
    }


def _curve(model: AskedModel, sample: Sample, grid: _Grid) -> FloatArray:
    points, size = len(grid.at), min(DRAWN_ROWS, len(sample))
    changed = sample.changed(np.tile(np.arange(size), points), grid.places, np.repeat(grid.from_P, size))
    weight_N = sample.weight_N[:size]
    parts = np.split(model.predict(changed), points)
    return np.stack([np.atleast_1d(np.average(values, axis=0, weights=weight_N)) for values in parts])


def _one(
    schema: TableSchema,
    column: str,
    feature: Feature,
    grid: _Grid,
    curves: Mapping[str, FloatArray],
    pair: tuple[str, str] | None,
) -> tuple[float, Dependence]:
    """How far the curves move, and the curves: with several classes, of the class that moves most."""
    leaders = [model for model in curves if pair is None or model in pair] or list(curves)
    range_G = np.mean([np.ptp(curves[model], axis=0) for model in leaders], axis=0)
    place = 1 if schema.task == "binary" else int(range_G.argmax())
    return float(range_G[place]), Dependence(
        column=column,
        title=feature.title,
        kind="categorical" if grid.shares else "numeric",
        at=grid.at,
        class_name=schema.classes[place] if schema.classes else None,
        deciles=grid.deciles,
        shares=grid.shares,
        curves={model: tuple(curve_PG[:, place].tolist()) for model, curve_PG in curves.items()},
    )


def _grid(feature: Feature, places: Places, rows: Rows) -> _Grid | None:
    """Quantiles of a number, or the most frequent levels; None if all rows have the same value."""
    if feature.kind == "categorical":
        return _of_levels(feature, places, rows)
    value_N = rows.numeric_NF[:, places.numeric[0]]
    found_P, first_P = np.unique(value_N, return_index=True)
    found_P, first_P = found_P[np.isfinite(found_P)], first_P[np.isfinite(found_P)]
    value_N = value_N[np.isfinite(value_N)]
    if len(found_P) > _MOST_POINTS:
        # Where the rows are, and where else values are: nine rows of ten may have a 0. Only values that
        # occur, since between two whole numbers a model may jump where no row ever is.
        shares = np.linspace(*_ENDS, _MOST_POINTS // 2)
        chosen = [np.quantile(own, shares, method="nearest") for own in (value_N, found_P)]
        kept_P = np.isin(found_P, np.concatenate(chosen))
        found_P, first_P = found_P[kept_P], first_P[kept_P]
    if len(found_P) < 2:
        return None
    if feature.is_boolean:
        share = float(value_N.mean())
        return _Grid(places=places, from_P=first_P, at=BOOLEANS, shares=(1 - share, share))
    deciles = np.quantile(value_N, np.linspace(0.1, 0.9, 9))
    return _Grid(places=places, from_P=first_P, at=tuple(found_P.tolist()), deciles=tuple(deciles.tolist()))


def _of_levels(feature: Feature, places: Places, rows: Rows) -> _Grid | None:
    code_N = rows.codes_NK[:, places.codes[0]]
    code_L, first_L, count_L = np.unique(code_N, return_index=True, return_counts=True)
    kept_P = np.sort(np.argsort(-count_L, kind="stable")[:_MOST_LEVELS])
    if len(kept_P) < 2:
        return None
    names = [*feature.levels, _MISSING]  # code -1 is a missing value
    return _Grid(
        places=places,
        from_P=first_L[kept_P],
        at=tuple(names[code] for code in code_L[kept_P]),
        shares=tuple((count_L[kept_P] / len(code_N)).tolist()),
    )
