"""``telemetry.csv``: what a sample of a run holds, and how the file is written and read.

A sample is one row, or one row for each watched GPU with the machine's columns repeated.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from io import StringIO
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from sparkgpu.core.host.lines import LineReader

IDLE_PERCENT = 10.0
"""A GPU that is busy for less of the time, at the median of at least `LEAST_SAMPLES` samples, idled."""

LEAST_SAMPLES = 20

_READ: dict[str, Callable[[str], Any]] = {
    "gpu": int,
    "gpu_uuid": str,
    "gpu_processes": lambda text: tuple(text.split()),
}
_DECIMALS = {"at": 3, "elapsed_s": 3, "cpu_s": 2, "load1": 2, "gpu_power_w": 1, "cpu_percent": 1}


@dataclass(frozen=True, kw_only=True)
class GpuSample:
    """One GPU: None where its driver does not tell.

    `gpu` is NVML's index. `gpu_util` is the per cent of time in which anything ran on it, `gpu_mem_bytes` are
    in use by all processes. ``rx`` is into the GPU, ``tx`` out of it; NVLink is the sum over its links.
    `gpu_processes` are the processes of the run that NVML sees on it, such as ``0/trees:4711`` (lane, branch
    and process id), and `gpu_other_processes` is the number of all others.
    """

    gpu: int
    gpu_util: float | None = None
    gpu_mem_bytes: float | None = None
    gpu_power_w: float | None = None
    gpu_uuid: str = ""
    gpu_mem_total_bytes: float | None = None
    gpu_pcie_rx_bytes_per_s: float | None = None
    gpu_pcie_tx_bytes_per_s: float | None = None
    gpu_nvlink_rx_bytes_per_s: float | None = None
    gpu_nvlink_tx_bytes_per_s: float | None = None
    gpu_processes: tuple[str, ...] = ()
    gpu_other_processes: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The run and its machine at one time.

    `at` is in seconds since the epoch, `elapsed_s` since the start of the run (or of its resumption).
    `rss_bytes`, `cpu_s` (CPU seconds used so far) and the disk's rates are of the run's processes;
    `cpu_percent` (of all cores), `mem_*` and the network's rates (without loopback) are the machine's.
    """

    at: float
    elapsed_s: float
    rss_bytes: float | None = None
    cpu_s: float | None = None
    load1: float | None = None
    cpu_percent: float | None = None
    mem_used_bytes: float | None = None
    mem_available_bytes: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    net_rx_bytes_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None
    gpus: tuple[GpuSample, ...] = ()


_HOST = tuple(field.name for field in fields(Sample) if field.name != "gpus")
_GPU = tuple(field.name for field in fields(GpuSample))
COLUMNS = (*_HOST, *_GPU)


def append_sample(path: Path, sample: Sample) -> None:
    """Append the rows of a sample, and the heading to a new file. Raises OSError.

    A run that another version began goes on in the columns of that version.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Opened again for each sample: a moved folder is no error, and a reader on another machine sees it.
    with path.open("a+", encoding="utf-8") as file:
        file.seek(0)
        heading = file.readline()
        if not heading:
            writer.writerow(COLUMNS)
        columns = heading.rstrip().split(",") if heading else COLUMNS
        for gpu in sample.gpus or (None,):
            writer.writerow([_text(name, gpu if name in _GPU else sample) for name in columns])
        file.write(text.getvalue())


def _text(name: str, record: Sample | GpuSample | None) -> str:
    value = getattr(record, name, None)
    if value is None:
        return ""
    if isinstance(value, str | int):
        return str(value)
    return " ".join(value) if isinstance(value, tuple) else f"{value:.{_DECIMALS.get(name, 0)}f}"


class TelemetryReader:
    """Reads the samples since the last read. Lines that are no samples are left out."""

    def __init__(self, path: Path) -> None:
        self._lines = LineReader(path)
        self._columns: list[str] = []

    def new(self) -> list[Sample]:
        rows = []
        for line in self._lines.new():
            row: list[str] = []
            with suppress(csv.Error, StopIteration):
                row = next(csv.reader([line.decode("ascii", "replace")]))
            if row[:1] == [COLUMNS[0]]:
                self._columns = row
            else:
                rows.append(dict(zip(self._columns, row, strict=False)))
        return list(_samples(rows))


def read_telemetry(path: Path) -> list[Sample]:
    """All samples of a file."""
    return TelemetryReader(path).new()


def _samples(rows: Iterable[dict[str, str]]) -> Iterator[Sample]:
    for _, group in groupby(rows, key=lambda row: row.get("at")):
        own = list(group)
        with suppress(TypeError, ValueError):
            gpus = tuple(GpuSample(**_values(row, _GPU)) for row in own if row.get("gpu"))
            yield Sample(**_values(own[0], _HOST), gpus=gpus)


def _values(row: dict[str, str], names: Iterable[str]) -> dict[str, Any]:
    return {name: _READ.get(name, float)(text) for name in names if (text := row.get(name))}


def idle_percent(utilisation: Iterable[float | None]) -> float | None:
    """The median of samples taken while something trained on a GPU, in per cent; None if it did not idle.

    Limits: NVML's utilisation is the share of time in which anything ran on the GPU, however little of it; a
    busy GPU may still be badly used. Slices by MIG and some virtual GPUs do not tell it, and never count as
    idle.
    """
    known = [value for value in utilisation if value is not None]
    if len(known) < LEAST_SAMPLES:
        return None
    middle = median(known)
    return middle if middle < IDLE_PERCENT else None
