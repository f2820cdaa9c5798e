"""What the columns added to the predictions of many rows: a dot for each row, the leading column first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.explanations import Summary
from sparkgpu.core.words import short
from sparkgpu.present.figure import Picture, new_figure, plot_style
from sparkgpu.present.pictures.shared import LETTER, legend_above, plain_numbers, rows_down
from sparkgpu.present.style import COLOURS, GREY, TEXT

_ROW, _WIDTH = 0.34, 5.0  # inches
_BINS = 40  # dots of one bin stand above each other
_KINDS = ((False, "low", COLOURS[0]), (True, "high", COLOURS[1]), (None, "missing, or no number", GREY))


def summary(found: Summary, target: str) -> Picture:
    """Dots to the right made the prediction greater; their colour tells the column's own value."""
    names = [short(one.column, 26) for one in found.columns]
    ends = np.array([abs(value) for one in found.columns for value in one.added])
    width = 2 * float(ends.max(initial=0.0)) / _BINS or 1.0
    with plot_style():
        left = 0.3 + LETTER * max(map(len, names))
        figure, axes = new_figure(_WIDTH + left, 0.95 + _ROW * len(names), left=left, right=0.2, top=0.35)
        for is_high, label, ink in _KINDS:
            x, y = [], []
            for place, one in enumerate(found.columns):
                added_N = np.array(one.added)
                of_kind_N = np.array([value is is_high for value in one.is_high])
                x += added_N[of_kind_N].tolist()
                y += (place + _apart(added_N, width)[of_kind_N]).tolist()
            if x:
                axes.plot(x, y, linestyle="", marker="o", markersize=2.6, color=ink.light, label=label)
        rows_down(axes, names)
        axes.axvline(0, color=TEXT.light, linewidth=0.8, zorder=0)
        what = f"{found.scale} of {short(found.class_name or target, 30)}"
        axes.set_xlabel(f"added to the {what}")
        plain_numbers(axes.xaxis)
        legend_above(axes, 3)
    return Picture(
        name="summary",
        caption=f"What the leading columns added to the {what} in {found.rows} test rows, by {found.model}, "
        "those that add most on average first. Orange: the row's own value is above the column's median.",
        figures=[figure],
    )


def _apart(added_N: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """How far each dot stands above or below its line, so that those of one bin lie beside each other."""
    bin_N = np.floor(added_N / width).astype(int)
    found_N = np.zeros(len(added_N))
    for number in np.unique(bin_N):
        own_N = np.flatnonzero(bin_N == number)
        step = min(0.12, 0.8 / len(own_N))
        found_N[own_N] = (np.arange(len(own_N)) - (len(own_N) - 1) / 2) * step
    return found_N
