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
class Timeline:
    """`lanes` are the phases by lane and branch, `panels` what was measured at `at_s`.

    Each panel has its heading with the unit, and its lines by name; NaN where nothing was measured.
    """

    end_s: float
    lanes: dict[str, tuple[Span, ...]]
    at_s: FloatArray
    panels: Mapping[str, Mapping[str, FloatArray]]


_PANELS: tuple[tuple[str, dict[str, str], str, float], ...] = (
    ("Busy, per cent", {"all cores": "cpu_percent"}, "gpu_util", 1.0),
    ("Memory, GiB", {"the run": "rss_bytes"}, "gpu_mem_bytes", 2.0**30),
    ("Power of the GPUs, watts", {}, "gpu_power_w", 1.0),
)
"""Heading, columns of the host by the name of their lines, column of each GPU, unit."""


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
    gpus = sorted({gpu.gpu for sample in samples for gpu in sample.gpus})
    panels = {}
    for title, of_host, of_gpu, unit in _PANELS:
        lines = {name: [getattr(sample, column) for sample in samples] for name, column in of_host.items()}
        for index in gpus:
            by_gpu = ({gpu.gpu: getattr(gpu, of_gpu) for gpu in sample.gpus} for sample in samples)
            lines[f"GPU {index}"] = [values.get(index) for values in by_gpu]
        known = {name: values for name, values in lines.items() if any(v is not None for v in values)}
        if known:
            panels[title] = {name: _thinned(values) / unit for name, values in known.items()}
    return Timeline(
        end_s=max(ends) - start,
        lanes={
            place: tuple(
                replace(span, begin_s=span.begin_s - start, end_s=span.end_s - start) for span in spans
            )
            for place, spans in phases.items()
        },
        at_s=_thinned([sample.at - start for sample in samples]),
        panels=panels,
    )


def _thinned(values: Sequence[float | None]) -> FloatArray:
    """Means over neighbouring samples, so that none is left out."""
    if not values:
        return np.empty(0)
    value = np.array(values, dtype=np.float64)  # None becomes NaN
    parts = np.array_split(value, min(MOST_SAMPLES, len(value)))
    known = [part[np.isfinite(part)] for part in parts]
    return np.array([part.mean() if len(part) else np.nan for part in known])


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
