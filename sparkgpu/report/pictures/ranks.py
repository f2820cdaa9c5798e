"""A leaderboard as a picture: a dot for each value on the test rows, whiskers for its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import SOFT, ModelStyle
from sparkgpu.score.metrics import greater_is_better
from sparkgpu.words import metric_title, number_text

MOST_RANKS = 30
_ROW = 0.3  # inches


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One row; a dashed line goes through the value of the one that the others are held against.

    `parts` are the values of what the row is a mean of, drawn as small marks below it.
    """

    name: str
    value: float
    ci95: tuple[float, float] | tuple[None, None]
    style: ModelStyle
    is_reference: bool = False
    parts: tuple[float, ...] = ()


def ranks(
    name: str, metric: str, rows: Sequence[Rank], caption: str, *, width: float = 5.2
) -> Picture | None:
    """`rows` from the top down, at most `MOST_RANKS`; None without any. `width`: inches beside names."""
    rows = rows[:MOST_RANKS]
    if not rows:
        return None
    left = 0.25 + 0.085 * max(len(row.name) for row in rows)
    figure, axes = new_figure(left + width, 0.75 + _ROW * len(rows), left=left, right=0.7, top=0.1)
    for place, row in enumerate(rows):
        low, high = row.ci95
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=row.style.colour, linewidth=1.6)
            axes.plot(
                [low, high], [place, place], color=row.style.colour, marker="|", markersize=7, linestyle=""
            )
        if row.parts:
            axes.plot(
                row.parts, [place + 0.3] * len(row.parts), color=SOFT.light, marker="|", markersize=4,
                linestyle="",
            )  # fmt: skip
        axes.plot(
            [row.value], [place], color=row.style.colour, marker=row.style.marker, markersize=6, linestyle=""
        )
        axes.annotate(
            number_text(row.value), (1.0, place), xycoords=("axes fraction", "data"), xytext=(6, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
        if row.is_reference:
            axes.axvline(row.value, color=SOFT.light, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    better = "greater" if greater_is_better(metric) else "smaller"
    axes.set_xlabel(f"{metric_title(metric)} on the test rows ({better} is better)")
    return picture(name, caption, [figure], with_png=True)
