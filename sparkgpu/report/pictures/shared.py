"""What several pictures share: their notes, short names, the diagonal, and a legend that covers no data."""

from __future__ import annotations

from matplotlib.axes import Axes

from sparkgpu.report.curves import TestRows
from sparkgpu.report.palette import SOFT

_LEGEND_LINE = 0.19  # inches


def drawn_from(test: TestRows) -> str:
    """A sentence for the caption if not all rows are drawn."""
    return f" Drawn from every {test.every}th row." if test.every > 1 else ""


def with_predictions(test: TestRows, models: list[str]) -> list[str]:
    """The models of the run, in its order, whose predictions are there."""
    return [model for model in models if model in test.trials]


def short(text: str, most: int = 14) -> str:
    """One line of at most `most` characters; of a longer name its begin and its end, which tell it apart."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    end = most // 4
    return text[: most - 1 - end] + "…" + text[len(text) - end :]


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
