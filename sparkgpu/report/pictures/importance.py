"""What the columns are worth to each model: a heat map, features down and models across."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.patches import Rectangle

from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import TEXT, styles
from sparkgpu.report.pictures.shared import short
from sparkgpu.rundir.explanations import Explanations
from sparkgpu.words import metric_title

MOST_ROWS = 20
_NAME = 30  # characters
_CELL = (0.95, 0.25)  # inches
_DARKEST = 0.7  # text on it stays readable


def importance_map(found: Explanations, names: Sequence[str], decimals: int) -> Picture | None:
    """Darker cells have a greater share of their own model's importance; `names` are the run's models."""
    models = [name for name in names if any(name in one.models for one in found.importances)]
    rows = found.importances[:MOST_ROWS]
    if not models or not rows:
        return None
    texts = [short(one.column, _NAME) for one in rows]
    left = 0.25 + 0.078 * max(map(len, texts))
    width, height = _CELL[0] * len(models) + left + 0.3, _CELL[1] * len(rows) + 0.35
    figure, axes = new_figure(width, height, left=left, right=0.3, bottom=0.05, top=0.3)
    look = styles(names)
    most = max(one.share for row in rows for one in row.models.values()) or 1.0
    for line, row in enumerate(rows):
        for column, model in enumerate(models):
            one = row.models.get(model)
            if one is None:
                continue
            axes.add_patch(
                Rectangle(
                    (column, line), 0.96, 0.92, facecolor=look[model].colour, linewidth=0,
                    alpha=_DARKEST * one.share / most,
                )
            )  # fmt: skip
            axes.text(
                column + 0.48, line + 0.48, f"{one.mean:z,.{decimals}f}", ha="center", va="center",
                color=TEXT.light,
            )  # fmt: skip
        if row.differs:
            axes.text(len(models) + 0.05, line + 0.48, "≠", va="center", weight="bold", color=TEXT.light)
    axes.set(xlim=(0, len(models)), ylim=(len(rows), 0))
    axes.set_yticks([line + 0.48 for line in range(len(rows))], texts)
    axes.set_xticks([column + 0.48 for column in range(len(models))], [short(name, 13) for name in models])
    axes.tick_params(length=0, labeltop=True, labelbottom=False, colors=TEXT.light)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    left_out = len(found.importances) - len(rows)
    caption = (
        f"How much {metric_title(found.metric)} each model loses when a column is shuffled. Darker: a "
        "greater share of all that this model loses."
    )
    if any(row.differs for row in rows):
        caption += " ≠: trees and network use the column differently."
    return picture(
        "importance", caption + (f" The leading {len(rows)} columns." if left_out else ""), [figure]
    )
