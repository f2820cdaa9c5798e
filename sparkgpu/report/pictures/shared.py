"""What several pictures share: notes, short names and numbers, the diagonal, a legend that covers no data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sparkgpu.report.curves import TestRows
from sparkgpu.report.palette import SOFT
from sparkgpu.score.metrics import primary, score
from sparkgpu.table.schema import Task

MOST_PANELS = 4
LETTER = 0.075
"""Inches of a letter at the usual size, with room to spare."""

_LEGEND_LINE = 0.19  # inches
_UNITS = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


def drawn_from(test: TestRows) -> str:
    """A sentence for the caption if not all rows are drawn."""
    return f" Drawn from every {test.every}th row." if test.every > 1 else ""


def averaged_over_trials(test: TestRows) -> str:
    """Another, if models have several trials."""
    several = max(map(len, test.trials.values()), default=0) > 1
    return " Predictions averaged over the trials." if several else ""


def with_predictions(test: TestRows, models: Iterable[str]) -> list[str]:
    """The models of the run, in its order, whose predictions are there."""
    return [model for model in models if model in test.trials]


def best_few(
    test: TestRows, task: Task, values: Mapping[str, float | None], most: int = MOST_PANELS
) -> tuple[list[str], str]:
    """The best models by the main metric `values`, in the run's order; a sentence if others are left out."""
    models = with_predictions(test, values)
    if len(models) <= most:
        return models, ""

    def goodness(model: str) -> float:
        value = values[model]
        return -np.inf if value is None or not np.isfinite(value) else score(primary(task), value)

    best = sorted(models, key=goodness, reverse=True)[:most]
    number = f" {most}" if most > 1 else ""
    return [model for model in models if model in best], f" The best{number} of {len(models)} models."


def short(text: str, most: int = 14) -> str:
    """One line of at most `most` characters; of a longer name its begin and its end, which tell it apart."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    end = most // 4
    return text[: most - 1 - end] + "…" + text[len(text) - end :]


def distinct(names: Iterable[str], most: int = 14) -> list[str]:
    """Each name shortened; those that would look the same get their place as a number."""
    shortened = [short(name, most) for name in names]
    return [
        name if shortened.count(name) == 1 else f"{name} {place}"
        for place, name in enumerate(shortened, start=1)
    ]


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


def legend_room(entries: int, columns: int = 1) -> float:
    """Inches above the axes for a legend of so many entries."""
    return 0.12 + _LEGEND_LINE * -(-entries // columns)


def legend_above(axes: Axes, columns: int = 1) -> None:
    """A legend above the axes, where it can cover nothing; the figure's top margin must be `legend_room`."""
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.2, borderpad=0.1,
            labelspacing=0.3, columnspacing=1.6,
        )  # fmt: skip
