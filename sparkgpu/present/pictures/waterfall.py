"""One row explained: from the base, column by column, to its prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkgpu.core.words import number_text, short, value_text
from sparkgpu.present.figure import Picture, new_figure, plot_style
from sparkgpu.present.pictures.shared import LETTER, plain_numbers, rows_down
from sparkgpu.present.style import COLOURS, SOFT, TEXT

_MOST_BARS = 12
_BAR = 0.27  # inches
_WIDTH = 4.7


def waterfall(line: Mapping[str, Any], values: Mapping[str, Any], target: str) -> Picture:
    """The `line` of a row in the table of `FittedModel.explain`; `values` are those of the row's columns."""
    names = sorted(values, key=lambda name: -abs(line[f"contribution_{name}"]))
    added = [line[f"contribution_{name}"] for name in names]
    error = [line.get(f"error_{name}", 0.0) for name in names]
    titles = [f"{short(name, 24)} = {_text(values[name])}" for name in names]
    if (rest := len(names) - _MOST_BARS) > 0:
        titles[_MOST_BARS:] = [f"{rest} other columns"]
        added[_MOST_BARS:] = [sum(added[_MOST_BARS:])]
        error[_MOST_BARS:] = [float(np.hypot.reduce(error[_MOST_BARS:]))]
    ends = line["base"] + np.cumsum(added)
    what = f"{line['scale']} of {short(str(line.get('class', target)), 30)}"
    with plot_style():
        left = 0.3 + LETTER * max(map(len, titles))
        figure, axes = new_figure(_WIDTH + left, 0.9 + _BAR * len(titles), left=left, right=0.75, top=0.3)
        axes.barh(
            range(len(titles)), added, left=ends - added, height=0.7, xerr=error if any(error) else None,
            ecolor=SOFT.light, color=[COLOURS[1 if one > 0 else 0].light for one in added],
        )  # fmt: skip
        for place, one in enumerate(added):
            text = f"{'+' if one > 0 else '−'}{number_text(abs(one), 3)}"
            axes.text(1.01, place, text, va="center", transform=axes.get_yaxis_transform())
        axes.use_sticky_edges = False
        rows_down(axes, titles)
        for value, dashes in ((line["base"], ":"), (ends[-1], "-")):
            axes.axvline(value, color=TEXT.light, linewidth=0.8, linestyle=dashes, zorder=0)
        axes.set_title(f"Row {line['row']}: {what} = {_number(ends[-1])}")
        axes.set_xlabel(f"{what}, from the base {_number(line['base'])} (dotted)")
        plain_numbers(axes.xaxis)
    errors = " Whiskers: the standard error of sampling." if any(error) else ""
    return Picture(
        name="waterfall",
        caption=f"What each column added to the {what} in row {line['row']}.{errors}",
        figures=[figure],
    )


def _number(value: float) -> str:
    return number_text(value).replace("-", "−")


def _text(value: Any) -> str:
    if value is None or value != value:
        return "missing"
    return value_text(value, 1e4) if isinstance(value, float) else short(str(value), 20)
