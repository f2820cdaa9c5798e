"""What the machine did: the phases of each branch over time, above its use, memory and power."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import short
from sparkgpu.present.figure import Picture
from sparkgpu.present.pictures.shared import below_legend, legend_above, rows_down
from sparkgpu.present.style import COLOURS, GREY, PAGE
from sparkgpu.present.timeline import Span, timeline
from sparkgpu.score.rows import FloatArray

_WIDTH, _LEFT = 9.6, 1.15
_COLUMNS = 4
_HUES = [ink for ink in COLOURS if ink is not GREY]  # grey is for the other phases
_MOST_LANES = 16  # rows that can be told apart; of more lanes the first
_STEPS_S = (30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
_MOST_STEPS = 8
_LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))


def activity(paths: RunPaths, *, on_cluster: bool = False) -> Picture | None:
    """None if the run left neither samples nor phases. Panels have the same axis of time."""
    found = timeline(paths)
    if found is None or found.end_s <= 0:
        return None
    figures = []
    if found.lanes:
        figure, axes = _bars(dict(list(found.lanes.items())[:_MOST_LANES]))
        _time_axis(axes, found.end_s)
        figures.append(figure)
    figures += [_panel(title, found.at_s, lines, found.end_s) for title, lines in found.panels.items()]
    if not figures:
        return None
    cut = (
        f" The first {_MOST_LANES} of {len(found.lanes)} branches." if len(found.lanes) > _MOST_LANES else ""
    )
    where = "the machine of the driver (executors are not measured)" if on_cluster else "the machine"
    caption = f"The run over time: what each branch did, and what {where} did meanwhile.{cut}"
    return Picture(name="activity", caption=caption, figures=figures)


def timings(phases: Mapping[str, Mapping[str, float]]) -> Picture | None:
    """Where the seconds of each lane and branch went, for runs that left no times of them."""
    rows = {
        place: [
            Span(phase=phase, begin_s=end_s - of_place[phase], end_s=end_s)
            for phase, end_s in zip(of_place, accumulate(of_place.values()), strict=True)
        ]
        for place, of_place in phases.items()
        if of_place
    }
    if not rows:
        return None
    figure, axes = _bars(rows)
    axes.set_xlabel("seconds")
    caption = "Time in each phase, for each lane and branch; branches run side by side."
    return Picture(name="timings", caption=caption, figures=[figure])


def _bars(rows: Mapping[str, Sequence[Span]]) -> tuple[Figure, Axes]:
    """A row of bars for each place, in the colours of their phases; the shortest phases are all grey."""
    totals: dict[str, float] = {}
    for spans in rows.values():
        for span in spans:
            totals[span.phase] = totals.get(span.phase, 0.0) + span.end_s - span.begin_s
    named = sorted(totals, key=lambda phase: -totals[phase])[: len(_HUES)]
    colours = dict(zip([phase for phase in totals if phase in named], _HUES, strict=False))
    entries = len(colours) + (len(totals) > len(named))
    height = 0.24 * len(rows) + 0.45
    figure, axes = below_legend(_WIDTH, height, entries, _COLUMNS, top=0.1, left=_LEFT, bottom=0.4)
    rows_down(axes, [short(place, 16) for place in rows])
    seen: set[str] = set()
    for row, spans in enumerate(rows.values()):
        for span in spans:
            shown = span.phase if span.phase in colours else "other"
            axes.barh(
                row, span.end_s - span.begin_s, left=span.begin_s, height=0.66,
                color=colours.get(shown, GREY).light, edgecolor=PAGE.light, linewidth=0.4,
                label=None if shown in seen else shown,
            )  # fmt: skip
            seen.add(shown)
    legend_above(axes, _COLUMNS)
    return figure, axes


def _panel(title: str, at_s: FloatArray, lines: Mapping[str, FloatArray], end_s: float) -> Figure:
    figure, axes = below_legend(_WIDTH, 1.35, len(lines), _COLUMNS, left=_LEFT, bottom=0.35)
    for number, (name, values) in enumerate(lines.items()):
        axes.plot(
            at_s, values, color=COLOURS[number % len(COLOURS)].light,
            linestyle=_LINES[number // len(COLOURS) % len(_LINES)], linewidth=1.2, label=name,
            marker="o" if len(at_s) == 1 else None,
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel(title.replace(", ", ",\n"))
    _time_axis(axes, end_s)
    legend_above(axes, _COLUMNS)
    return figure


def _time_axis(axes: Axes, end_s: float) -> None:
    axes.set_xlim(0, end_s)
    if end_s >= 180:  # seconds are at whole tens by themselves
        steps_s = (step_s for step_s in _STEPS_S if end_s <= _MOST_STEPS * step_s)
        days_s = 86400 * math.ceil(end_s / 86400 / _MOST_STEPS)
        axes.xaxis.set_major_locator(MultipleLocator(next(steps_s, days_s)))
    unit_s, unit = (3600, "h") if end_s >= 5400 else (60, "min") if end_s >= 180 else (1, "s")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / unit_s:,.4g} {unit}")
