"""How the predictions depend on the leading features: partial dependence, of all models on the same rows.

G classes or 1, P points of a grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkgpu.explain.columns import Column, Drawable
from sparkgpu.explain.grids import MOST_POINTS, Axis, grid_of
from sparkgpu.explain.models import Asking
from sparkgpu.rundir.explanations import ColumnImportance, Dependence
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import listed

DRAWN = 6
"""The leading columns that are drawn."""

DRAWN_ROWS = 200
MOST_ASKED = DRAWN * MOST_POINTS * DRAWN_ROWS
"""The rows that a model is asked about, where no column has several parts."""


def dependence_of(
    own: Asking,
    columns: Sequence[Column],
    importances: Sequence[ColumnImportance],
    pair: tuple[str, str] | None,
) -> tuple[Dependence, ...]:
    """The curves of the leading columns; of a moment, that of its part which moves the models most."""
    by_name = {column.name: column for column in columns}
    leading = [by_name[one.column] for one in importances[:DRAWN]]
    rows = own.sample.rows
    drawables = [
        (column.name, drawable, *made)
        for column in leading
        for drawable in column.drawables
        if (made := grid_of(drawable, rows))
    ]
    curves = own.drawn([grid for *_, grid, _ in drawables], DRAWN_ROWS, own.until)
    found: dict[str, tuple[float, Dependence]] = {}
    for number, (name, drawable, _, axis) in enumerate(drawables):
        own_curves = {model: curve for (model, place), curve in curves.items() if place == number}
        if not own_curves:
            continue
        moves, dependence = _one(own.schema, name, drawable, axis, own_curves, pair)
        if name not in found or moves > found[name][0]:
            found[name] = moves, dependence
    missing = [column.name for column in leading if column.name not in found]
    if missing:
        own.notes.append(f"There was no time to draw, or nothing to draw, for {listed(missing)}.")
    return tuple(dependence for _, dependence in found.values())


def _one(
    schema: TableSchema,
    column: str,
    drawable: Drawable,
    axis: Axis,
    curves: dict[str, FloatArray],
    pair: tuple[str, str] | None,
) -> tuple[float, Dependence]:
    """How far the curves move, and the curves: with several classes, of the class that moves most."""
    leaders = [model for model in curves if pair is None or model in pair] or list(curves)
    range_G = np.mean([np.ptp(curves[model], axis=0) for model in leaders], axis=0)
    place = 1 if schema.task == "binary" else int(range_G.argmax())
    return float(range_G[place]), Dependence(
        column=column,
        title=drawable.title,
        kind=drawable.kind,
        at=axis.at,
        class_name=schema.classes[place] if schema.classes else None,
        deciles=axis.deciles,
        shares=axis.shares,
        curves={model: tuple(curve_PG[:, place].tolist()) for model, curve_PG in curves.items()},
    )
