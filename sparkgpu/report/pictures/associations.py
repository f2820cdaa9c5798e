"""How the columns belong together: a heat map of all pairs, the target last."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import COLOURS, TEXT
from sparkgpu.report.pictures.shared import short
from sparkgpu.rundir.profile import Associations

_WITH_FIGURES = 16  # up to this many columns the cells have room for figures
_CELL = 0.3  # inches
_LETTER = 0.075
_SCALE = 0.75  # to the right of the map
_STRONGEST = 0.8  # the opacity at 1
_SHADE = [int(COLOURS[0].light[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def associations(found: Associations, columns: int) -> Picture | None:
    """One panel; `columns` is how many features the table has. None for a table without features."""
    count = len(found.columns)
    if count < 2:
        return None
    names = [short(name, 22) for name in found.columns]
    names[-1] += " (target)"
    room = 0.2 + _LETTER * max(map(len, names))
    cell = max(_CELL, 2.4 / count) if count <= _WITH_FIGURES else 0.2
    size = cell * count
    figure, axes = new_figure(
        size + room + _SCALE, size + room + 0.1, left=room, right=_SCALE, bottom=room, top=0.1
    )
    value = np.array(found.values, dtype=float)
    image = np.zeros((count, count, 4))
    image[:, :, :3] = _SHADE
    image[:, :, 3] = _STRONGEST * np.nan_to_num(value) * (1 - np.eye(count))
    axes.imshow(image, interpolation="none")
    axes.grid(visible=False)
    _scale(figure, size, room)
    axes.set_xticks(range(count), names, rotation=90)
    axes.set_yticks(range(count), names)
    axes.axhline(count - 1.5, color=TEXT.light, linewidth=0.8)
    axes.axvline(count - 1.5, color=TEXT.light, linewidth=0.8)
    if count <= _WITH_FIGURES:
        for (row, column), strength in np.ndenumerate(value):
            if row != column and strength >= 0.1:
                axes.text(
                    column,
                    row,
                    f"{100 * strength:.0f}",
                    ha="center",
                    va="center",
                    color=TEXT.light,
                    fontsize=8,
                )
    all_shown = count - 1 == columns
    most = "" if all_shown else f" The {count - 1} features of {columns:,} that belong to the target most."
    caption = (
        "Associations of pairs of columns, from 0 to 1, in hundredths; a stronger shade is more. Numbers: "
        "Spearman's rank correlation without its sign. Categories: Cramér's V. A number and a category: the "
        "correlation ratio of the ranks; the last two are corrected for chance."
        f"{most} From {found.rows:,} training rows."
    )
    return picture("associations", caption, [figure])


def _scale(figure: Figure, size: float, room: float) -> None:
    """The shades from 0 to 1 beside the map, which is `size` inches wide and `room` from the left."""
    width, height = figure.get_size_inches()
    tall = min(size, 2.4)
    axes = figure.add_axes(
        ((room + size + 0.2) / width, (room + size - tall) / height, 0.12 / width, tall / height)
    )
    shades = np.zeros((101, 1, 4))
    shades[:, :, :3] = _SHADE
    shades[:, 0, 3] = _STRONGEST * np.linspace(0, 1, len(shades))
    axes.imshow(shades, interpolation="none", aspect="auto", origin="lower", extent=(0, 1, 0, 1))
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.set_yticks([0, 0.5, 1], ["0", "50", "100"])
