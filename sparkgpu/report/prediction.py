"""What was predicted of the run, beside what it took; only for a run that was asked to predict it."""

from __future__ import annotations

from collections.abc import Callable

from sparkgpu.report.cells import Cell, Table
from sparkgpu.rundir.advice import AdviceRecord
from sparkgpu.rundir.files import read_record
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results
from sparkgpu.words import gibibytes, number_text, seconds_text


def prediction(paths: RunPaths, found: Results) -> tuple[Table, tuple[str, ...]]:
    """The comparison and what the prediction assumed; both are empty without ``advice.json``."""
    if not paths.advice.is_file():
        return Table(columns=(), rows=()), ()
    advice = read_record(paths.advice, AdviceRecord)
    known = [trial.peak_device_bytes for trial in found.done() if trial.peak_device_bytes is not None]
    device = max(known, default=None)
    rows = [_row("time to the result", advice.wall_s, found.run.wall_s, seconds_text)]
    rows.append(_row("memory of all processes", advice.peak_rss_bytes, found.run.peak_rss_bytes, _memory))
    if advice.peak_device_bytes is not None and device is not None:
        rows.append(_row("memory of the network on a GPU", advice.peak_device_bytes, device, _memory))
    rows.append(_row("device-hours", advice.device_hours, found.cost.device_hours, _hours))
    if advice.price is not None and found.cost.price is not None:
        rows.append(_row("cost", advice.price, found.cost.price, _hours))
    columns = ("prediction and outcome", "predicted", "measured", "measured over predicted")
    return Table(columns=columns, rows=tuple(rows)), advice.assumptions


def _row(name: str, predicted: float, measured: float, text: Callable[[float], str]) -> tuple[Cell, ...]:
    ratio = f"{measured / predicted:.2f}" if predicted else "–"
    return (
        Cell(text=name),
        Cell(text=text(predicted), number=True),
        Cell(text=text(measured), number=True),
        Cell(text=ratio, number=True),
    )


def _memory(value: float) -> str:
    return gibibytes(round(value))


def _hours(value: float) -> str:
    return number_text(value, 3)
