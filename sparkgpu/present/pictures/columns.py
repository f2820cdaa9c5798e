"""The columns: how they belong together, what they are worth to each model, and what the leading ones do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import MaxNLocator

from sparkgpu.core.rundir.explanations import Dependence, Explanations
from sparkgpu.core.rundir.profile import Associations
from sparkgpu.core.words import metric_title, short
from sparkgpu.present.figure import Picture, new_figure
from sparkgpu.present.pictures.shared import (
    below_legend,
    heat_map,
    legend_above,
    plain_logs,
    plain_numbers,
    shaded,
)
from sparkgpu.present.result_tables import decimals_of
from sparkgpu.present.style import COLOURS, LINE, SOFT, TEXT, ModelStyle, styles

_WITH_FIGURES = 16  # up to this many columns the cells have room for figures
_CELL = 0.3  # inches
_STRONGEST = 0.8  # the opacity at 1
_MOST_ROWS = 20
_NAME = 30  # characters
_WORTH_CELL = (0.95, 0.25)  # inches
_DARKEST = 0.7  # text on it stays readable
_WIDTH, _HEIGHT = 3.3, 2.2  # inches: three across a page of 1280 pixels
_BARS = 0.22  # of the height, for the most frequent level
_WIDE_RANGE = 100.0  # of values above 0: then on a logarithmic scale
_MOST_FLAT = 4  # levels whose names fit beside each other
_DAYS = " (days since 1970)"


def associations(found: Associations, columns: int) -> Picture | None:
    """A heat map of all pairs, the target last; `columns` is how many features the table has.

    None for a table without features.
    """
    count = len(found.columns)
    if count < 2:
        return None
    names = [short(name, 22) for name in found.columns]
    names[-1] += " (target)"
    has_room = count <= _WITH_FIGURES
    cell = max(_CELL, 2.4 / count) if has_room else 0.2
    value = np.nan_to_num(np.array(found.values, dtype=float)) * (1 - np.eye(count))
    texts = {
        place: f"{100 * strength:.0f}"
        for place, strength in np.ndenumerate(value)
        if has_room and strength >= 0.1
    }
    image = shaded(COLOURS[0].light, _STRONGEST * value)
    figure, axes = heat_map(image, names, names, texts, (cell, cell), letters=8)
    axes.axhline(count - 1.5, color=TEXT.light, linewidth=0.8)
    axes.axvline(count - 1.5, color=TEXT.light, linewidth=0.8)
    all_shown = count - 1 == columns
    most = "" if all_shown else f" The {count - 1} features of {columns:,} that belong to the target most."
    caption = (
        "Associations of pairs of columns, from 0 to 1, in hundredths; a stronger shade is more. Numbers: "
        "Spearman's rank correlation without its sign. Categories: Cramér's V. A number and a category: the "
        "correlation ratio of the ranks; the last two are corrected for chance."
        f"{most} From {found.rows:,} training rows."
    )
    return Picture(name="associations", caption=caption, figures=[figure])


def importance_map(found: Explanations, names: Sequence[str]) -> Picture | None:
    """Darker cells have a greater share of their own model's importance; `names` are the run's models."""
    models = [name for name in names if any(name in one.models for one in found.importances)]
    rows = found.importances[:_MOST_ROWS]
    if not models or not rows:
        return None
    decimals, look = decimals_of(found), styles(names)
    share = np.array(
        [[row.models[name].share if name in row.models else 0.0 for name in models] for row in rows]
    )
    opacity = _DARKEST * share / (share.max() or 1.0)
    image = np.stack(
        [shaded(look[name].colour, opacity[:, place]) for place, name in enumerate(models)], axis=1
    )
    texts = {
        (line, place): f"{row.models[name].mean:z,.{decimals}f}"
        for line, row in enumerate(rows)
        for place, name in enumerate(models)
        if name in row.models
    }
    titles = [short(row.column, _NAME) + (" ≠" if row.differs else "") for row in rows]
    figure, _ = heat_map(image, titles, [short(name, 13) for name in models], texts, _WORTH_CELL)
    left_out = len(found.importances) - len(rows)
    caption = (
        f"How much {metric_title(found.metric)} each model loses when a column is shuffled. Darker: a "
        "greater share of all that this model loses."
    )
    if any(row.differs for row in rows):
        caption += " ≠: trees and network use the column differently."
    caption += f" The leading {len(rows)} columns." if left_out else ""
    return Picture(name="importance", caption=caption, figures=[figure])


def dependence(found: Explanations, names: Sequence[str], target: str) -> Picture | None:
    """One panel for each feature, with the same scale where the same class or value is shown."""
    if not found.dependence:
        return None
    same_scale = len({one.class_name for one in found.dependence}) == 1
    values = [value for one in found.dependence for curve in one.curves.values() for value in curve]
    margin = 0.06 * (max(values) - min(values)) or 1.0
    limits = (min(values) - margin, max(values) + margin) if same_scale else None
    models = [name for name in names if any(name in one.curves for one in found.dependence)]
    look = {name: styles(names)[name] for name in models}
    bottom = max(_foot(one) for one in found.dependence)
    height, margins = _HEIGHT - 0.5 + bottom, {"bottom": bottom, "left": 0.65}
    figures = []
    for place, one in enumerate(found.dependence):
        if place:
            figure, axes = new_figure(_WIDTH, height + 0.1, top=0.1, **margins)
        else:
            figure, axes = below_legend(_WIDTH, height, len(models), 2, **margins)
        _panel(axes, one, look, target)
        if limits is not None:
            axes.set_ylim(*limits)
        if not place:
            legend_above(axes, 2)
        figures.append(figure)
    of_class = found.dependence[0].class_name
    what = (
        f"predicted {short(target, 30)}"
        if of_class is None
        else f"probability of {short(of_class, 30)}"
        if same_scale
        else "probability of the class that moves most"
    )
    caption = (
        f"Mean {what} when all rows get the same value of a feature. At the foot: the deciles of a number, "
        "the share of each level."
    )
    return Picture(name="dependence", caption=caption, figures=figures)


def _names(one: Dependence) -> list[str]:
    """The levels; none of a number."""
    return [short(str(level)) for level in one.at] if one.kind == "categorical" else []


def _foot(one: Dependence) -> float:
    """Inches below the axes, for the names of levels that stand upright."""
    names = _names(one)
    return 0.5 + (0.075 * max(map(len, names)) if len(names) > _MOST_FLAT else 0.0)


def _panel(axes: Axes, one: Dependence, look: Mapping[str, ModelStyle], target: str) -> None:
    models = [name for name in look if name in one.curves]
    if one.kind == "categorical":
        names = _names(one)
        _levels(axes, one, models, look)
        axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > _MOST_FLAT else 0)
        axes.grid(visible=False, axis="x")
    else:
        _numbers(axes, one, models, look)
    axes.set_xlabel(short(one.title.removesuffix(_DAYS), 34))
    is_value = one.class_name is None
    axes.set_ylabel(f"predicted {short(target)}" if is_value else f"P({short(str(one.class_name))})")
    if is_value:
        plain_numbers(axes.yaxis)


def _levels(axes: Axes, one: Dependence, models: Sequence[str], look: Mapping[str, ModelStyle]) -> None:
    """A mark for each model at each level, a little apart, over bars for the levels' shares."""
    axes.bar(
        range(len(one.at)), [_BARS * share / max(one.shares) for share in one.shares], width=0.8,
        color=LINE.light, transform=axes.get_xaxis_transform(), zorder=0,
    )  # fmt: skip
    for place, model in enumerate(models):
        apart = 0.5 * ((place + 0.5) / len(models) - 0.5)
        style = look[model]
        axes.plot(
            [level + apart for level in range(len(one.at))], one.curves[model], **style.mark, markersize=5,
            label=short(model, 16),
        )  # fmt: skip
    axes.set_xlim(-0.6, len(one.at) - 0.4)


def _numbers(axes: Axes, one: Dependence, models: Sequence[str], look: Mapping[str, ModelStyle]) -> None:
    """A line for each model over ticks at the deciles."""
    at = [float(value) for value in one.at]
    for model in models:
        axes.plot(at, one.curves[model], **look[model].line, label=short(model, 16))
    axes.vlines(one.deciles, 0, 0.05, color=SOFT.light, linewidth=0.9, transform=axes.get_xaxis_transform())
    if one.title.endswith(_DAYS):
        locator = AutoDateLocator(minticks=2, maxticks=4)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    elif at[0] > 0 and at[-1] > _WIDE_RANGE * at[0]:
        axes.set_xscale("log")
        plain_logs(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        if max(map(abs, at)) >= 1e4:
            plain_numbers(axes.xaxis)
