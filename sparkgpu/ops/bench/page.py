"""The table of a bench as Markdown, CSV and a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkgpu.core.rundir.advice import BenchRecord, BenchRow
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.words import capital
from sparkgpu.present.scaling import bench_table
from sparkgpu.present.table import markdown

# Distinct for colour-blind readers (Tol, bright), and by their markers in print.
_STYLES = (("#4477aa", "o"), ("#ee6677", "s"), ("#228833", "^"), ("#ccbb44", "D"), ("#66ccee", "v"),
           ("#aa3377", "P"))  # fmt: skip


def write_bench(bench: BenchRecord, folder: Path) -> None:
    """Write ``bench.md``, ``bench.csv`` and ``bench.json`` to `folder`."""
    notes = [f"- {capital(note)}." for note in bench.notes]
    page = (f"# {bench.title}", "", markdown(bench_table(bench.rows)), "", *notes)
    write_text(folder / "bench.md", "\n".join(page) + "\n")
    write_text(folder / "bench.csv", _as_csv(bench.rows))
    write_json(folder / "bench.json", bench)


def _as_csv(rows: Sequence[BenchRow]) -> str:
    """The rows with plain numbers; times in seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("configuration", "devices", "networks", "time_s", "rows_per_s", "speed_up", "efficiency",
         "device_hours", "price", "simulated", "note")
    )  # fmt: skip
    writer.writerows(
        (row.name, row.devices, row.networks, row.time_s, row.rows_per_s, row.speed_up, row.efficiency,
         row.device_hours, row.price, row.is_simulated, row.note)
        for row in rows
    )  # fmt: skip
    return text.getvalue()


def draw(title: str, rows: Sequence[BenchRow], file: Path) -> None:
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


def _draw_lines(axes: Any, rows: Sequence[BenchRow]) -> None:
    """Each line begins at the first row, one device."""
    counts = sorted({row.devices for row in rows})
    axes.plot(counts, counts, color="0.6", linestyle=":", label="ideal")
    for place, name in enumerate(dict.fromkeys(row.name for row in rows[1:])):
        colour, marker = _STYLES[place % len(_STYLES)]
        own = [row for row in rows[1:] if row.name == name]
        measured = [rows[0], *(row for row in own if not row.is_simulated)]
        simulated = [row for row in own if row.is_simulated]
        for found, label, style in (
            (measured, name, {"linestyle": "-"}),
            (simulated, f"{name}, simulated", {"linestyle": "--", "markerfacecolor": "white"}),
        ):
            if found:
                devices, speed_up = [row.devices for row in found], [row.speed_up for row in found]
                axes.plot(devices, speed_up, color=colour, marker=marker, label=label, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.set_xlabel("devices")
    axes.set_ylabel("speed-up: rows per second over one device")
