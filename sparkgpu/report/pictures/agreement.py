"""How alike the models' predictions are, as a heat map with its numbers."""

from __future__ import annotations

import numpy as np

from sparkgpu.report.agreement import Agreement
from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import COLOURS, TEXT
from sparkgpu.report.pictures.shared import LETTER, distinct

_CELL = 0.5  # inches
_STRONGEST = 0.6  # the shade on which figures are still readable


def agreement_map(found: Agreement) -> Picture | None:
    """None for two models, of which one number says all."""
    count = len(found.models)
    if count < 3:
        return None
    names = distinct(found.models, 18)
    longest = 0.15 + LETTER * max(map(len, names))
    side = _CELL * count
    figure, axes = new_figure(
        side + longest + 0.15, side + longest + 0.1, left=longest, bottom=longest, top=0.1
    )
    alike = found.alike_MM
    least = float(alike.min())
    image = np.zeros((count, count, 4))
    image[:, :, :3] = [int(COLOURS[0].light[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    image[:, :, 3] = _STRONGEST * (alike - least) / max(1 - least, 1e-9)
    axes.imshow(image, interpolation="none", aspect="auto")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(count), names, rotation=90)
    axes.set_yticks(range(count), names)
    axes.tick_params(length=0, labelcolor=TEXT.light)
    decimals = 2 if least < 0.98 else 3
    for (row, column), value in np.ndenumerate(alike):
        if row != column:
            axes.text(
                column, row, f"{value:.{decimals}f}", ha="center", va="center",
                fontsize=9 if decimals == 2 else 8,
            )  # fmt: skip
    return picture("agreement", f"How alike the models are: {found.what}.", [figure])
