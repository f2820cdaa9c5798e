"""What several pictures share: notes, short names and numbers, the diagonal, a legend that covers no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.present.figure import new_figure
from sparkgpu.present.style import SOFT, TEXT, ModelStyle, styles
from sparkgpu.score.metrics import score
from sparkgpu.score.predictions import ModelPredictions

MOST_ROWS = 200_000
"""More rows do not improve a picture."""

LETTER = 0.075
"""Inches of a letter at the usual size, with room to spare."""

_LEGEND_LINE = 0.19  # inches
_UNITS = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


def notes_on(rows: ModelPredictions, results: Results | None = None) -> str:
    """Sentences for the caption: if trials of `results` are averaged, and if not all rows are drawn."""
    several = results is not None and any(len(results.done(model)) > 1 for model in rows.values)
    averaged = " Predictions averaged over the trials." if several else ""
    return averaged + (f" Drawn from every {rows.every}th row." if rows.every > 1 else "")


def with_predictions(rows: ModelPredictions, results: Results) -> list[str]:
    """The models of the run, in its order, whose predictions are there."""
    return [model.name for model in results.models if model.name in rows.values]


def best_few(rows: ModelPredictions, results: Results, most: int = 4) -> tuple[list[str], str]:
    """The best models by the main metric, in the run's order; a sentence if others are left out."""
    models = with_predictions(rows, results)
    if len(models) <= most:
        return models, ""
    metric = results.comparison.metric
    values = {model.name: model.metrics.test.get(metric) for model in results.models}

    def goodness(model: str) -> float:
        value = values[model]
        return -np.inf if value is None or not np.isfinite(value) else score(metric, value)

    best = sorted(models, key=goodness, reverse=True)[:most]
    number = f" {most}" if most > 1 else ""
    return [model for model in models if model in best], f" The best{number} of {len(models)} models."


def shaded(colour: str, opacity: NDArray[Any]) -> NDArray[Any]:
    """An image of one colour, (..., 4), with these opacities."""
    image = np.empty((*np.shape(opacity), 4))
    image[..., :3], image[..., 3] = to_rgb(colour), opacity
    return image


def heat_map(
    image: NDArray[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    texts: Mapping[Any, str],
    cell: tuple[float, float],
    *,
    letters: float = 9,
    title: str = "",
    labels: tuple[str, str] = ("", ""),
) -> tuple[Figure, Axes]:
    """The cells of `image`, (rows, columns, 4), with `texts` on them and names to the left and below.

    `texts` are by row and column; `labels` are those of the columns and of the rows. A cell is so many inches
    wide and high. Names below that are wider than a cell stand upright.
    """
    beside, below = (LETTER * letters / 9 * max(map(len, names)) for names in (rows, columns))
    upright = below > cell[0]
    left = 0.2 + beside + (0.2 if labels[1] else 0.0)
    bottom = 0.2 + (below if upright else 0.15) + (0.2 if labels[0] else 0.0)
    top, right = (0.3 if title else 0.1), 0.15
    width, height = cell[0] * len(columns), cell[1] * len(rows)
    figure, axes = new_figure(
        width + left + right, height + bottom + top, left=left, right=right, bottom=bottom, top=top
    )
    axes.imshow(image, interpolation="none", aspect="auto")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(title)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.set_xticks(range(len(columns)), columns, rotation=90 if upright else 0, fontsize=letters)
    axes.set_yticks(range(len(rows)), rows, fontsize=letters)
    axes.tick_params(length=0, pad=2, labelcolor=TEXT.light)
    for (row, column), text in texts.items():
        axes.text(column, row, text, ha="center", va="center", color=TEXT.light, fontsize=letters)
    return figure, axes


def compact(value: float, _: object = None) -> str:
    """A number for an axis: 25k, 1.5M, 0.25."""
    for least, size, unit in _UNITS:
        if abs(value) >= least:
            return f"{value / size:.4g}{unit}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def plain_numbers(*axes: Axis) -> None:
    """Numbers of a linear axis without a factor that stands elsewhere."""
    for axis in axes:
        axis.set_major_formatter(FuncFormatter(compact))


def plain_logs(*axes: Axis) -> None:
    """Numbers of a logarithmic axis as they are: no powers, which are formulas."""
    for axis in axes:
        low, high = sorted(axis.get_view_interval())
        decades = np.log10(high / low) if low > 0 else 1.0
        axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 3 else (1.0, 2.0, 5.0), numticks=8))
        axis.set_major_formatter(FuncFormatter(compact))
        axis.set_minor_formatter(NullFormatter())
        axis.set_tick_params(which="minor", length=0)


def diagonal(axes: Axes, low: float = 0.0, high: float = 1.0) -> None:
    """Where both axes agree."""
    axes.plot([low, high], [low, high], color=SOFT.light, linewidth=0.8, zorder=1)


def below_legend(
    width: float, height: float, entries: int, columns: int = 1, *, top: float = 0.0, **margins: float
) -> tuple[Figure, Axes]:
    """As `new_figure`, with room above for `legend_above` and `top` more inches."""
    room = legend_room(entries, columns) + top
    return new_figure(width, height + room, top=room, **margins)


def legend_room(entries: int, columns: int = 1) -> float:
    """Inches above the axes for a legend of so many entries."""
    return 0.12 + _LEGEND_LINE * -(-entries // columns)


def legend_above(axes: Axes, columns: int = 1) -> None:
    """A legend above the axes, where it can cover nothing; the figure must be `below_legend`."""
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.2, borderpad=0.1,
            labelspacing=0.3, columnspacing=1.6,
        )  # fmt: skip


def rows_down(axes: Axes, names: Sequence[str], edge: float = 0.5) -> None:
    """A named row for each place on the axis, from the top down."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - edge, -1 + edge)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def looks(results: Results) -> Mapping[str, ModelStyle]:
    """How each model of the run looks in all of its pictures."""
    return styles(model.name for model in results.models)
