"""What the machine did over time: the samples of ``telemetry.csv`` and the phases of every branch.

Limits: at most `MOST_SAMPLES` samples, each the mean of its neighbours, since more would be finer than a
pixel. A resumed run's samples of its first part are not joined to the others: time starts at the last
beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from sparkgpu.core.config.registry.engines import BRANCHES
from sparkgpu.core.host.telemetry import Sample, read_telemetry
from sparkgpu.core.rundir.events import Event, EventReader
from sparkgpu.core.rundir.files import UNREADABLE
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.score.rows import FloatArray

MOST_SAMPLES = 240


@dataclass(frozen=True, kw_only=True)
class Span:
    """One phase of a branch, in seconds since the start of the run."""

    phase: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Series:
    """One measured quantity over time; NaN where nothing was measured."""

    name: str
    at_s: FloatArray
    value: FloatArray


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """`lanes` are the phases by lane and branch; the other values are series of one unit each.

    `busy` is in per cent (the machine's cores, each GPU), `memory` in bytes, `power` in watts, `traffic` in
    bytes per second.
    """

    end_s: float
    lanes: dict[str, tuple[Span, ...]]
    busy: tuple[Series, ...]
    memory: tuple[Series, ...]
    power: tuple[Series, ...]
    traffic: tuple[Series, ...]


def timeline(paths: RunPaths) -> Timeline | None:
    """Read it; None without samples and phases."""
    samples: list[Sample] = []
    with suppress(*UNREADABLE):
        samples = read_telemetry(paths.telemetry)
    falls = [i for i in range(1, len(samples)) if samples[i].elapsed_s < samples[i - 1].elapsed_s]
    samples = samples[falls[-1] if falls else 0 :]
    phases = dict(_phases(paths))
    if not samples and not phases:
        return None
    start = samples[0].at - samples[0].elapsed_s if samples else min(s[0].begin_s for s in phases.values())
    ends = [*(spans[-1].end_s for spans in phases.values()), *(sample.at for sample in samples[-1:])]
    at_s = np.array([sample.at - start for sample in samples])

    def of_host(name: str, column: str) -> Iterator[Series]:
        yield from _series(name, at_s, [getattr(sample, column) for sample in samples])

    def of_gpus(column: str, word: str = "") -> Iterator[Series]:
        for index in sorted({gpu.gpu for sample in samples for gpu in sample.gpus}):
            of_gpu = [{gpu.gpu: getattr(gpu, column) for gpu in sample.gpus} for sample in samples]
            yield from _series(f"{word} GPU {index}".strip(), at_s, [values.get(index) for values in of_gpu])

    return Timeline(
        end_s=max(ends) - start,
        lanes={
            place: tuple(
                replace(span, begin_s=span.begin_s - start, end_s=span.end_s - start) for span in spans
            )
            for place, spans in phases.items()
        },
        busy=(*of_host("all cores", "cpu_percent"), *of_gpus("gpu_util")),
        memory=(*of_host("the run", "rss_bytes"), *of_gpus("gpu_mem_bytes")),
        power=tuple(of_gpus("gpu_power_w")),
        traffic=(
            *of_host("disk, read", "disk_read_bytes_per_s"),
            *of_host("disk, written", "disk_write_bytes_per_s"),
            *of_host("network, in", "net_rx_bytes_per_s"),
            *of_host("network, out", "net_tx_bytes_per_s"),
            *of_gpus("gpu_pcie_rx_bytes_per_s", "PCIe, into"),
            *of_gpus("gpu_pcie_tx_bytes_per_s", "PCIe, out of"),
            *of_gpus("gpu_nvlink_rx_bytes_per_s", "NVLink, into"),
            *of_gpus("gpu_nvlink_tx_bytes_per_s", "NVLink, out of"),
        ),
    )


def _series(name: str, at_s: FloatArray, values: Sequence[float | None]) -> Iterator[Series]:
    """Means over neighbouring samples, so that none is left out; nothing without any value."""
    if all(value is None for value in values):
        return
    parts = np.array_split(np.arange(len(at_s)), min(MOST_SAMPLES, len(at_s)))
    value = np.array(values, dtype=np.float64)  # None becomes NaN

    def mean(part: FloatArray) -> float:
        known = part[np.isfinite(part)]
        return float(known.mean()) if len(known) else float("nan")

    yield Series(
        name=name, at_s=np.array([mean(at_s[part]) for part in parts]),
        value=np.array([mean(value[part]) for part in parts]),
    )  # fmt: skip


def seconds_by_phase(
    paths: RunPaths, recorded: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """The seconds of each phase by place, as the picture over time shows them; `recorded` where it has none.

    A phase lasts until the next one of its branch begins, so work between two phases counts to the first.
    The run's own seconds in ``metrics.json`` leave that work out.
    """
    found = {place: dict(of_place) for place, of_place in recorded.items() if of_place}
    for place, spans in _phases(paths):
        if place in found:
            found[place] = {}
            for span in spans:
                found[place][span.phase] = found[place].get(span.phase, 0.0) + span.end_s - span.begin_s
    return found


def _phases(paths: RunPaths) -> Iterator[tuple[str, list[Span]]]:
    """The phases by lane and branch, in seconds since the epoch."""
    for place, events in events_of(paths):
        spans: list[Span] = []
        for event in events:
            if spans:  # whatever comes next shows that the phase lasted until then
                spans[-1] = replace(spans[-1], end_s=event.at)
            if event.kind == "phase":
                spans.append(Span(phase=event.text, begin_s=event.at, end_s=event.at))
        if spans:
            yield place, spans


def events_of(paths: RunPaths) -> Iterator[tuple[str, list[Event]]]:
    """The events of every lane and branch; none where they cannot be read."""
    for lane in paths.lanes():
        for branch in BRANCHES:
            with suppress(*UNREADABLE):
                yield f"lane {lane} {branch}", EventReader(paths.lane(lane).events(branch)).new()
