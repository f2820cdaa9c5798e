"""How the predictions depend on the leading features: partial dependence, of all models on the same rows.

N rows, P points of a grid, L levels, G classes or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sparkgpu.core.rundir.explanations import ColumnImportance, Dependence
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import Feature, TableSchema
from sparkgpu.core.words import listed
from sparkgpu.predict.explain.columns import Column, Places
from sparkgpu.predict.explain.models import Grid, Models
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


def dependence_of(
    own: Models,
    columns: Sequence[Column],
    importances: Sequence[ColumnImportance],
    pair: tuple[str, str] | None,
) -> tuple[Dependence, ...]:
    """The curves of the leading columns; of a timestamp, that of its part that moves them most."""
    by_name = {column.name: column for column in columns}
    leading = [by_name[one.column] for one in importances[:DRAWN]]
    drawable = [
        (column.name, feature, grid)
        for column in leading
        for feature, places in column.features
        if (grid := grid_of(feature, places, own.sample.rows))
    ]
    curves = own.drawn([grid for *_, grid in drawable], DRAWN_ROWS)
    found: dict[str, tuple[float, Dependence]] = {}
    for number, (name, feature, grid) in enumerate(drawable):
        if number in curves:
            moves, dependence = _one(own.schema, name, feature, grid, curves[number], pair)
            if name not in found or moves > found[name][0]:
                found[name] = moves, dependence
    missing = [column.name for column in leading if column.name not in found]
    if missing:
        own.notes.append(f"There was no time to draw, or nothing to draw, for {listed(missing)}.")
    return tuple(dependence for _, dependence in found.values())


def _one(
    schema: TableSchema,
    column: str,
    feature: Feature,
    grid: Grid,
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
        kind=feature.kind,
        at=grid.at,
        class_name=schema.classes[place] if schema.classes else None,
        deciles=grid.deciles,
        shares=grid.shares,
        curves={model: tuple(curve_PG[:, place].tolist()) for model, curve_PG in curves.items()},
    )


def grid_of(feature: Feature, places: Places, rows: Rows) -> Grid | None:
    """Quantiles of a number, or the most frequent levels; None if all rows have the same value."""
    if feature.kind == "numeric":
        return _of_numbers(places.numeric[0], rows)
    return _of_levels(feature, places, rows)


def _of_numbers(place: int, rows: Rows) -> Grid | None:
    value_N = rows.numeric_NF[:, place]
    value_N = value_N[np.isfinite(value_N)]
    found_P = np.unique(value_N)
    if len(found_P) > _MOST_POINTS:
        # Where the rows are, and where else values are: nine rows of ten may have a 0. Only values that
        # occur, since between two whole numbers a model may jump where no row ever is.
        shares = np.linspace(*_ENDS, _MOST_POINTS // 2)
        by_rows, by_values = (np.quantile(own, shares, method="nearest") for own in (value_N, found_P))
        found_P = np.unique(np.concatenate([by_rows, by_values]))
    if len(found_P) < 2:
        return None
    deciles = np.quantile(value_N, np.linspace(0.1, 0.9, 9))
    return Grid(numeric=((place, found_P),), at=tuple(found_P.tolist()), deciles=tuple(deciles.tolist()))


def _of_levels(feature: Feature, places: Places, rows: Rows) -> Grid | None:
    """A level's mean targets come from a row that has it."""
    (place,) = places.codes
    code_N = rows.codes_NK[:, place]
    code_L, first_L, count_L = np.unique(code_N, return_index=True, return_counts=True)
    kept_P = np.sort(np.argsort(-count_L, kind="stable")[:_MOST_LEVELS])
    if len(kept_P) < 2:
        return None
    names = [*feature.levels, _MISSING]  # code -1 is a missing value
    return Grid(
        numeric=tuple((own, rows.numeric_NF[first_L[kept_P], own]) for own in places.numeric),
        codes=((place, code_L[kept_P]),),
        at=tuple(names[code] for code in code_L[kept_P]),
        shares=tuple((count_L[kept_P] / len(code_N)).tolist()),
    )
