"""Where the time of each lane and branch went."""

from __future__ import annotations

from sparkgpu.report.figure import Picture, new_figure, picture
from sparkgpu.report.palette import COLOURS, GREY, PAGE
from sparkgpu.report.pictures.shared import legend_above, legend_room, short

_COLUMNS = 4
_HUES = [ink.light for ink in COLOURS if ink is not GREY]


def timings(phases: dict[str, dict[str, float]]) -> Picture | None:
    """A bar for each lane and branch, divided into its phases in order."""
    phases = {place: of_place for place, of_place in phases.items() if of_place}
    if not phases:
        return None
    names = list(dict.fromkeys(name for of_place in phases.values() for name in of_place))
    totals = {name: sum(of_place.get(name, 0.0) for of_place in phases.values()) for name in names}
    # As many phases as colours; the others would be too thin to see.
    named = set(sorted(names, key=lambda name: -totals[name])[: len(_HUES)])
    legend = [name for name in names if name in named]
    colours = dict(zip(legend, _HUES, strict=False))
    room = legend_room(len(legend) + 1, _COLUMNS)
    figure, axes = new_figure(8.8, 0.27 * len(phases) + 0.45 + room, left=1.4, bottom=0.45, top=room)
    seen: set[str] = set()
    for row, of_place in enumerate(phases.values()):
        start = 0.0
        for name, seconds in of_place.items():
            shown = name if name in named else "other"
            axes.barh(
                row, seconds, left=start, height=0.62, color=colours.get(shown, GREY.light),
                edgecolor=PAGE.light, linewidth=0.4, label=None if shown in seen else shown,
            )  # fmt: skip
            seen.add(shown)
            start += seconds
    axes.set_yticks(range(len(phases)), [short(place) for place in phases])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("seconds")
    legend_above(axes, _COLUMNS)
    caption = "Time in each phase, for each lane and branch; branches run side by side."
    return picture("timings", caption, [figure], with_png=True)
