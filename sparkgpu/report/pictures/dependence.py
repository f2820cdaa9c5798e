"""How the predictions depend on the leading features: a panel for each, all models in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import LINE, SOFT, ModelStyle, styles
from sparkgpu.report.pictures.shared import legend_above, legend_room, plain_numbers, short
from sparkgpu.rundir.explanations import Dependence, Explanations

_WIDTH, _HEIGHT = 3.3, 2.2  # inches: three across a page of 1280 pixels
_BARS = 0.22  # of the height, for the most frequent level
_WIDE_RANGE = 100.0  # of values above 0: then on a logarithmic scale
_MOST_FLAT = 4  # levels whose names fit beside each other
_DAYS = "(days since 1970)"


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """What the panels share: the models' looks, the limits of the values, the room below the axes."""

    look: Mapping[str, ModelStyle]
    legend_of: Sequence[str]
    target: str
    limits: tuple[float, float] | None
    bottom: float


def dependence(found: Explanations, names: Sequence[str], target: str) -> Picture | None:
    """One panel for each feature, with the same scale where the same class or value is shown."""
    if not found.dependence:
        return None
    same_scale = len({one.class_name for one in found.dependence}) == 1
    values = [value for one in found.dependence for curve in one.curves.values() for value in curve]
    margin = 0.06 * (max(values) - min(values)) or 1.0
    limits = (min(values) - margin, max(values) + margin) if same_scale else None
    models = [name for name in names if any(name in one.curves for one in found.dependence)]
    frame = _Frame(
        look=styles(names), legend_of=models, target=target, limits=limits,
        bottom=max(_foot(one) for one in found.dependence),
    )  # fmt: skip
    figures = [_panel(one, frame, place == 0) for place, one in enumerate(found.dependence)]
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
    return picture("dependence", caption, figures)


def _names(one: Dependence) -> list[str]:
    """The levels; none of a number."""
    return [short(str(level)) for level in one.at] if one.kind == "categorical" else []


def _foot(one: Dependence) -> float:
    """Inches below the axes, for the names of levels that stand upright."""
    names = _names(one)
    return 0.5 + (0.075 * max(map(len, names)) if len(names) > _MOST_FLAT else 0.0)


def _panel(one: Dependence, frame: _Frame, with_legend: bool) -> Figure:
    room = legend_room(len(frame.legend_of), 2) if with_legend else 0.1
    height = _HEIGHT - 0.5 + frame.bottom + room
    figure, axes = new_figure(_WIDTH, height, top=room, bottom=frame.bottom, left=0.65)
    models = [name for name in frame.legend_of if name in one.curves]
    if one.kind == "categorical":
        names = _names(one)
        _levels(axes, one, models, frame.look)
        axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > _MOST_FLAT else 0)
        axes.grid(visible=False, axis="x")
    else:
        _numbers(axes, one, models, frame.look)
    axes.set_xlabel(short(one.title, 34))
    is_value = one.class_name is None
    axes.set_ylabel(f"predicted {short(frame.target)}" if is_value else f"P({short(str(one.class_name))})")
    if is_value:
        plain_numbers(axes.yaxis)
    if frame.limits is not None:
        axes.set_ylim(*frame.limits)
    if with_legend:
        legend_above(axes, 2)
    return figure


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
            [level + apart for level in range(len(one.at))], one.curves[model], color=style.colour,
            linestyle="none", marker=style.marker, markersize=5, label=short(model, 16),
        )  # fmt: skip
    axes.set_xlim(-0.6, len(one.at) - 0.4)


def _numbers(axes: Axes, one: Dependence, models: Sequence[str], look: Mapping[str, ModelStyle]) -> None:
    """A line for each model over ticks at the deciles."""
    at = [float(value) for value in one.at]
    for model in models:
        style = look[model]
        axes.plot(at, one.curves[model], color=style.colour, linestyle=style.line, label=short(model, 16))
    axes.vlines(one.deciles, 0, 0.05, color=SOFT.light, linewidth=0.9, transform=axes.get_xaxis_transform())
    if one.title.endswith(_DAYS):
        locator = AutoDateLocator(maxticks=4)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    elif at[0] > 0 and at[-1] > _WIDE_RANGE * at[0]:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
