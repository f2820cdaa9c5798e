"""The table of a bench as Markdown, CSV and a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkgpu.advise.bench.rows import Row
from sparkgpu.words import number_text, seconds_text

HEADER = ("configuration", "devices", "networks", "time", "rows/s", "speed-up", "efficiency", "device-hours",
           "cost", "note")  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    """A row in words and figures."""
    return (
        row.name,
        f"{row.devices:,}",
        f"{row.networks:,}",
        seconds_text(row.time_s),
        f"{row.rows_per_s:,.0f}",
        f"{row.speed_up:.2f}",
        f"{row.efficiency:.0%}",
        number_text(row.device_hours, 3),
        "–" if row.price is None else number_text(row.price, 3),
        row.note,
    )


def as_markdown(title: str, rows: Sequence[Row], notes: Sequence[str]) -> str:
    """A page with the table and its notes."""
    lines = [f"# {title}", "", _line(HEADER), _line(["---", *["---:"] * 8, "---"])]
    lines += [_line(cells(row)) for row in rows]
    lines += ["", *(f"- {note[0].upper()}{note[1:]}." for note in notes)]
    return "\n".join(lines) + "\n"


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"


def as_csv(rows: Sequence[Row]) -> str:
    """The rows with plain numbers; times in seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("configuration", "devices", "networks", "time_s", "rows_per_s", "speed_up", "efficiency",
         "device_hours", "price", "simulated", "note")
    )  # fmt: skip
    for row in rows:
        writer.writerow(
            (row.name, row.devices, row.networks, f"{row.time_s:.4f}", f"{row.rows_per_s:.1f}",
             f"{row.speed_up:.4f}", f"{row.efficiency:.4f}", f"{row.device_hours:.8f}",
             "" if row.price is None else f"{row.price:.8f}", row.is_simulated, row.note)
        )  # fmt: skip
    return text.getvalue()


def draw(title: str, rows: Sequence[Row], file: Path) -> None:
    """Speed-up over devices, a line for each configuration, simulated rows dashed, and the ideal line.

    A table with one number of devices becomes bars of rows per second.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize="medium")
    if len({row.devices for row in rows}) == 1:
        axes.barh([row.name for row in rows][::-1], [row.rows_per_s for row in rows][::-1], color="#4477aa")
        axes.set_xlabel("rows per second")
    else:
        _draw_lines(axes, rows)
        figure.legend(loc="outside right upper")
    figure.savefig(file, dpi=150)


def _draw_lines(axes: Any, rows: Sequence[Row]) -> None:
    """Each line begins at the first row, one device."""
    counts = sorted({row.devices for row in rows})
    axes.plot(counts, counts, color="0.6", linestyle=":", label="ideal")
    first = (rows[0].devices, rows[0].speed_up)
    names = list(dict.fromkeys(row.name for row in rows[1:]))
    for place, name in enumerate(names):
        colour, marker = _COLOURS[place % len(_COLOURS)]
        measured = [first] + [(row.devices, row.speed_up) for row in rows[1:]
                              if row.name == name and not row.is_simulated]  # fmt: skip
        axes.plot(*zip(*measured, strict=True), color=colour, marker=marker, label=name)
        if simulated := [
            (row.devices, row.speed_up) for row in rows if row.name == name and row.is_simulated
        ]:
            label = f"{name}, simulated"
            axes.plot(*zip(*simulated, strict=True), color=colour, marker=marker, linestyle="--",
                      markerfacecolor="white", label=label)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.set_xlabel("devices")
    axes.set_ylabel("speed-up: rows per second over one device")


# Distinct for colour-blind readers (Tol, bright), and by their markers in print.
_COLOURS = [("#4477aa", "o"), ("#ee6677", "s"), ("#228833", "^"), ("#ccbb44", "D"), ("#66ccee", "v"),
            ("#aa3377", "P")]  # fmt: skip
