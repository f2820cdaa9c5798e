"""All that moves in a display: the progress of each branch of each lane, the devices, and the time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from sparkgpu.core.words import clean, clock_text, gibibytes, metric_title, number_text

if TYPE_CHECKING:
    from sparkgpu.core.config.registry.engines import Branch
    from sparkgpu.core.host.telemetry import Sample
    from sparkgpu.core.plan.plan import LanePlan
    from sparkgpu.core.rundir.events import Event

BRANCHES: tuple[Branch, Branch] = ("trees", "neural")
_LINES_OF_A_LANE = 3
_STEPS_OF_A_RATE = 6  # a network is slow beside the trees, and quick after them


@dataclass
class Progress:
    """The progress of one branch of one lane. Rates use the workers' clock, countdowns our own."""

    planned: tuple[str, ...] = ()
    text: str = "waiting"
    trial: str | None = None
    done: float | None = None
    step: int | None = None
    metric: str | None = None
    value: float | None = None
    ended: set[str] = field(default_factory=set)
    _steps: deque[tuple[float, float]] = field(
        default_factory=lambda: deque([(math.inf, 0.0)], _STEPS_OF_A_RATE)
    )
    """The worker's time and the share done at the last steps of this phase, at first at its start."""
    _estimate: tuple[float, float] | None = None  # our clock's time, and the seconds left at that time

    def take(self, event: Event, now: float) -> None:
        if event.kind == "alive":
            return
        if event.trial != self.trial:
            self.trial, self.done, self.step, self.value = event.trial, None, None, None
            self._begin(event.at, event.done)
        if event.kind == "phase":
            self.text = event.text
            self._begin(event.at, event.done or self.done)
        elif event.kind == "progress":
            self.done = event.done
            self.step = event.step if event.step is not None else self.step
            if event.value is not None:
                self.metric, self.value = event.metric, event.value
            self._estimate = self._estimated(event, now)
        elif event.kind == "trial_left":
            self.text, self._estimate = "no time for more", None
            self.ended.add(event.trial or "")
        elif event.trial:
            self.ended.add(event.trial)
            self.done = 1.0 if event.kind == "trial_done" else self.done
            self.text, self._estimate = "done" if event.kind == "trial_done" else "failed", None

    def _begin(self, at: float, done: float | None) -> None:
        self._steps.clear()
        self._steps.append((at, done or 0.0))
        self._estimate = None

    def _estimated(self, event: Event, now: float) -> tuple[float, float] | None:
        (since, done), share = self._steps[0], event.done or 0.0
        self._steps.append((event.at, share))
        if share <= done or event.at <= since or (done and len(self._steps) < _STEPS_OF_A_RATE):
            return self._estimate
        return now, (1.0 - share) * (event.at - since) / (share - done)

    def left_s(self, now: float) -> float | None:
        """Seconds to the planned end of the trial, at the rate of its last steps; it may stop early."""
        return max(0.0, self._estimate[1] - (now - self._estimate[0])) if self._estimate else None

    def figures(self) -> list[str]:
        step = [f"step {self.step:,}"] if self.step is not None else []
        return step + (
            [f"{metric_title(self.metric or '')} {number_text(self.value)}"] if self.value is not None else []
        )

    def cell(self, now: float, *, full: bool) -> RenderableType:
        name = self.trial or ""
        if self.trial in self.planned and len(self.planned) > 1:
            name += f" ({self.planned.index(self.trial) + 1} of {len(self.planned)})"
        # An unknown share pulses; before the first event and after the last one nothing moves.
        still = self.text == "waiting" or self.trial in self.ended
        bar = ProgressBar(total=1.0, completed=self.done or 0.0, pulse=self.done is None and not still)
        left = self.left_s(now)
        share = f"{self.done:4.0%}" if self.done is not None else ""
        line = Table.grid(Column(ratio=1), Column(no_wrap=True), padding=(0, 1), expand=True)
        value = number_text(self.value) if self.value is not None and not full else ""
        rest = f"{clock_text(left)} left" if left is not None else ""
        line.add_row(bar, " ".join(part for part in (value, share, rest) if part))
        if not full:
            return line
        style = {"failed": "red", "done": "green"}.get(self.text, "")
        title = Text(
            clean(f"{self.text} · {name}" if name else self.text),
            style=style,
            no_wrap=True,
            overflow="ellipsis",
        )
        return Group(title, line, Text(" · ".join(self.figures()), no_wrap=True, overflow="ellipsis"))


def _devices(sample: Sample, names: Mapping[str, str]) -> RenderableType:
    """A line for each GPU and one for the processor; `names` are those of the lanes' devices, by UUID."""
    figures = (Column(no_wrap=True, justify="right") for _ in range(3))
    name = Column(no_wrap=True, style="dim")
    grid = Table.grid(name, Column(ratio=1), *figures, padding=(0, 2), expand=True)
    for gpu in sample.gpus:
        watts = f"{gpu.gpu_power_w:3.0f} W" if gpu.gpu_power_w is not None else ""
        memory = _of(gpu.gpu_mem_bytes, gpu.gpu_mem_total_bytes)
        grid.add_row(names.get(gpu.gpu_uuid, f"GPU {gpu.gpu}"), *_busy(gpu.gpu_util), memory, watts)
    run = f"run {gibibytes(sample.rss_bytes)}" if sample.rss_bytes is not None else ""
    total = None
    if sample.mem_used_bytes is not None and sample.mem_available_bytes is not None:
        total = sample.mem_used_bytes + sample.mem_available_bytes
    grid.add_row("cpu", *_busy(sample.cpu_percent), _of(sample.mem_used_bytes, total), run)
    return grid


def _busy(percent: float | None) -> tuple[RenderableType, str]:
    colour = "cyan"  # not that of a trial's bar
    bar = ProgressBar(total=100.0, completed=percent or 0.0, complete_style=colour, finished_style=colour)
    return bar, f"{_percent(percent)} busy"


def _percent(value: float | None) -> str:
    return f"{value:3.0f} %" if value is not None else "  – %"


def _of(used: float | None, total: float | None) -> str:
    if used is None:
        return ""
    return gibibytes(used) if total is None else f"{used / 2**30:.1f} of {gibibytes(total)}"


def frame(
    lanes: Sequence[LanePlan],
    progress: Mapping[tuple[int, Branch], Progress],
    sample: Sample | None,
    *,
    now: float,
    elapsed_s: float,
    height: int,
) -> RenderableType:
    """Of `height` lines one is left free; many lanes take a line each, and devices are shown if they fit."""
    rest = height - 4  # an empty line, the heading, the time, and the free one
    of_devices = len(sample.gpus) + 1 if sample else 0
    full = _LINES_OF_A_LANE * len(lanes) + of_devices <= rest
    name = Column(no_wrap=True, style="dim")
    branches = [one for one in BRANCHES if any(progress[lane.index, one].planned for lane in lanes)]
    columns = (Column(ratio=1, no_wrap=True) for _ in branches)
    table = Table.grid(name, *columns, padding=(0, 2), expand=True)
    table.add_row("", *(Text(branch, style="bold") for branch in branches))
    for lane in lanes:
        cells = (progress[lane.index, branch].cell(now, full=full) for branch in branches)
        place = f"lane {lane.index}\n{lane.device}" if full else f"{lane.index} {lane.device}"
        table.add_row(place, *cells)
    shown: list[RenderableType] = ["", table]
    rest -= len(lanes) * (_LINES_OF_A_LANE if full else 1)
    if sample and of_devices <= rest:
        names = {one.cuda_visible_devices: one.device for one in lanes if one.cuda_visible_devices}
        shown += [""] * (of_devices < rest) + [_devices(sample, names)]
    return Group(*shown, Text(f"{clock_text(elapsed_s)} elapsed", style="dim"))
