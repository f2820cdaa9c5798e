"""What the machine did over time: the samples of ``telemetry.csv`` and the phases of every branch.

Limits: at most `MOST_SAMPLES` samples, each the mean of its neighbours, since more would be finer than a
pixel. A resumed run's samples of its first part are not joined to the others: time starts at the last
beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from sparkgpu.config.registry.engines import BRANCHES
from sparkgpu.host.telemetry import Sample, read_telemetry
from sparkgpu.rundir.events import EventReader
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.score.rows import FloatArray

MOST_SAMPLES = 240


@dataclass(frozen=True, kw_only=True)
class Span:
    """One phase of a branch, in seconds since the start of the run."""

    phase: str
    trial: str
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
    with suppress(OSError, ValueError):
        samples = read_telemetry(paths.telemetry)
    samples = samples[_last_beginning(samples) :]
    phases = dict(_phases(paths))
    begins = [spans[0][1] for spans in phases.values()]
    starts = [samples[0].at - samples[0].elapsed_s] if samples else begins
    if not starts:
        return None
    start = min(starts)
    ends = [samples[-1].at] if samples else []
    ends += [end for spans in phases.values() for _, _, _, end in spans]
    at_s = np.array([sample.at - start for sample in samples])
    return Timeline(
        end_s=max(ends) - start,
        lanes={
            place: tuple(
                Span(phase=phase, trial=trial, begin_s=begin - start, end_s=end - start)
                for phase, begin, trial, end in spans
            )
            for place, spans in phases.items()
        },
        busy=(*_host(samples, at_s, "cpu_percent", "all cores"), *_of_gpus(samples, at_s, "gpu_util")),
        memory=(*_host(samples, at_s, "rss_bytes", "the run"), *_of_gpus(samples, at_s, "gpu_mem_bytes")),
        power=_of_gpus(samples, at_s, "gpu_power_w"),
        traffic=(
            *_host(samples, at_s, "disk_read_bytes_per_s", "disk, read"),
            *_host(samples, at_s, "disk_write_bytes_per_s", "disk, written"),
            *_host(samples, at_s, "net_rx_bytes_per_s", "network, in"),
            *_host(samples, at_s, "net_tx_bytes_per_s", "network, out"),
            *_of_gpus(samples, at_s, "gpu_pcie_rx_bytes_per_s", "PCIe, into"),
            *_of_gpus(samples, at_s, "gpu_pcie_tx_bytes_per_s", "PCIe, out of"),
            *_of_gpus(samples, at_s, "gpu_nvlink_rx_bytes_per_s", "NVLink, into"),
            *_of_gpus(samples, at_s, "gpu_nvlink_tx_bytes_per_s", "NVLink, out of"),
        ),
    )


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
            sums: dict[str, float] = {}
            for phase, begin, _, end in spans:
                sums[phase] = sums.get(phase, 0.0) + end - begin
            found[place] = sums
    return found


def _last_beginning(samples: Sequence[Sample]) -> int:
    falls = [i for i in range(1, len(samples)) if samples[i].elapsed_s < samples[i - 1].elapsed_s]
    return falls[-1] if falls else 0


def _phases(paths: RunPaths) -> Iterator[tuple[str, list[tuple[str, float, str, float]]]]:
    """Phase, begin, trial and end of each, by lane and branch."""
    for lane in paths.lanes():
        for branch in BRANCHES:
            events = []
            with suppress(OSError, ValueError):
                events = EventReader(paths.lane(lane).events(branch)).new()
            spans: list[tuple[str, float, str, float]] = []
            for event in events:
                if spans:  # whatever comes next shows that the phase lasted until then
                    spans[-1] = (*spans[-1][:3], event.at)
                if event.kind == "phase":
                    spans.append((event.text, event.at, event.trial or "", event.at))
            if spans:
                yield f"lane {lane} {branch}", spans


def _host(samples: Sequence[Sample], at_s: FloatArray, column: str, name: str) -> list[Series]:
    values = [getattr(sample, column) for sample in samples]
    if not any(value is not None for value in values):
        return []
    return [_thinned(name, at_s, np.array([np.nan if value is None else value for value in values]))]


def _of_gpus(samples: Sequence[Sample], at_s: FloatArray, column: str, word: str = "") -> tuple[Series, ...]:
    found = []
    for index in sorted({gpu.gpu for sample in samples for gpu in sample.gpus}):
        of_gpu = [{gpu.gpu: getattr(gpu, column) for gpu in sample.gpus}.get(index) for sample in samples]
        if any(value is not None for value in of_gpu):
            values = np.array([np.nan if value is None else value for value in of_gpu], dtype=np.float64)
            found.append(_thinned(f"{word} GPU {index}".strip(), at_s, values))
    return tuple(found)


def _thinned(name: str, at_s: FloatArray, value: FloatArray) -> Series:
    """Means over neighbouring samples, so that none is left out."""
    parts = np.array_split(np.arange(len(at_s)), min(MOST_SAMPLES, len(at_s)))
    value = np.asarray(value, dtype=np.float64)

    def mean(part: FloatArray) -> float:
        known = part[np.isfinite(part)]
        return float(known.mean()) if len(known) else float("nan")

    return Series(
        name=name, at_s=np.array([mean(at_s[part]) for part in parts]),
        value=np.array([mean(value[part]) for part in parts]),
    )  # fmt: skip
