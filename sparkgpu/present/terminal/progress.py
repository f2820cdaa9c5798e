"""All that moves in a display: the progress of each branch of each lane, the devices, warnings, and the time.

Only GPUs can idle: a CPU's lanes share its cores, so their use says little about any one of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sparkgpu.core.host.telemetry import idle_percent
from sparkgpu.core.words import clean, clock_text, gibibytes, metric_title, number_text

if TYPE_CHECKING:
    from sparkgpu.core.config.registry.engines import Branch
    from sparkgpu.core.host.telemetry import GpuSample, Sample
    from sparkgpu.core.plan.plan import LanePlan
    from sparkgpu.core.rundir.events import Event

BRANCHES: tuple[Branch, Branch] = ("trees", "neural")
_WATCHED = 30  # samples, one a second
_LINES_OF_A_LANE = 3
_MOST_WARNINGS = 3


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
    _origin: tuple[float, float] = (math.inf, 0.0)  # worker's time and share done at the start of the phase
    _estimate: tuple[float, float] | None = None  # our clock's time, and the seconds left at that time

    def take(self, event: Event, now: float) -> None:
        if event.kind == "alive":
            return
        if event.trial != self.trial:
            self.trial, self.done, self.step, self.value = event.trial, None, None, None
            self._origin, self._estimate = (event.at, event.done or 0.0), None
        if event.kind == "phase":
            self.text, self._origin, self._estimate = event.text, (event.at, self.done or 0.0), None
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

    def _estimated(self, event: Event, now: float) -> tuple[float, float] | None:
        (since, done), share = self._origin, event.done or 0.0
        if share <= done or event.at <= since:
            return self._estimate
        return now, (1.0 - share) * (event.at - since) / (share - done)

    def left_s(self, now: float) -> float | None:
        """Seconds to the planned end of the trial; early stopping may end it sooner."""
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
        line = Table.grid(padding=(0, 1), expand=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True)
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


class Devices:
    """The newest sample of each of the lanes' devices, and how busy each was while it trained."""

    def __init__(self, lanes: Sequence[LanePlan] = ()) -> None:
        self._names = {lane.cuda_visible_devices: lane.device for lane in lanes if lane.cuda_visible_devices}
        self._sample: Sample | None = None
        self._busy: dict[str, deque[float | None]] = {}
        self._idle: dict[str, str] = {}

    def take(self, sample: Sample, training: Mapping[str, str]) -> list[str]:
        """Show `sample`; `training` names a trial for each device on which one trains now.

        Returns the warnings that are new.
        """
        self._sample = sample
        before = self._idle
        self._idle = {}
        for gpu in sample.gpus:
            name = self._name(gpu)
            if name not in training:
                self._busy.pop(name, None)
                continue
            busy = self._busy.setdefault(name, deque(maxlen=_WATCHED))
            busy.append(gpu.gpu_util)
            if (median := idle_percent(busy)) is not None:
                self._idle[name] = (
                    f"{name} idles: busy {median:.0f} % of the time while {clean(training[name])} trains"
                )
        return [text for name, text in self._idle.items() if name not in before]

    @property
    def warnings(self) -> list[str]:
        return list(self._idle.values())

    def __len__(self) -> int:
        """The number of lines with one device in each."""
        return 0 if self._sample is None else len(self._sample.gpus) + 1

    def lines(self, rows: int) -> RenderableType:
        """All devices in at most `rows` lines: one in each, two in each, or one line for all GPUs."""
        sample = self._sample
        assert sample is not None
        if rows < (len(self) + 1) // 2:
            return Text(_in_one_line(sample), style="dim", no_wrap=True, overflow="ellipsis")
        run = f"run {gibibytes(sample.rss_bytes)}" if sample.rss_bytes is not None else ""
        devices = [
            (
                self._name(gpu),
                gpu.gpu_util,
                _of(gpu.gpu_mem_bytes, gpu.gpu_mem_total_bytes),
                _watts(gpu.gpu_power_w),
            )
            for gpu in sample.gpus
        ]  # fmt: skip
        devices.append(("cpu", sample.cpu_percent, _of(sample.mem_used_bytes, _total(sample)), run))
        grid = Table.grid(padding=(0, 2), expand=True)
        if rows >= len(self):
            grid.add_column(no_wrap=True, style="dim")
            grid.add_column(ratio=1)
            for _ in range(3):
                grid.add_column(no_wrap=True, justify="right")
            for name, busy, memory, rest in devices:
                grid.add_row(name, _bar(busy), f"{_percent(busy)} busy", memory, rest)
            return grid
        for _ in range(2):
            grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        devices[-1] = (*devices[-1][:3], "")  # there is no room for the run's own memory
        texts = [f"{name:<7} {_percent(busy)}  {memory}  {rest}" for name, busy, memory, rest in devices]
        for place in range(0, len(texts), 2):
            grid.add_row(*texts[place : place + 2])
        return grid

    def _name(self, gpu: GpuSample) -> str:
        return self._names.get(gpu.gpu_uuid, f"GPU {gpu.gpu}")


def _in_one_line(sample: Sample) -> str:
    busy = [gpu.gpu_util for gpu in sample.gpus if gpu.gpu_util is not None]
    watts = [gpu.gpu_power_w for gpu in sample.gpus if gpu.gpu_power_w is not None]
    parts = [f"{len(sample.gpus)} GPUs", f"{min(busy):.0f}–{max(busy):.0f} % busy" if busy else "– % busy"]
    parts += [f"{sum(watts):,.0f} W"] if watts else []
    return " · ".join([*parts, f"cpu {_percent(sample.cpu_percent).strip()} busy"])


def _bar(percent: float | None) -> RenderableType:
    colour = "cyan"  # not that of a trial's bar
    return ProgressBar(total=100.0, completed=percent or 0.0, complete_style=colour, finished_style=colour)


def _percent(value: float | None) -> str:
    return f"{value:3.0f} %" if value is not None else "  – %"


def _watts(value: float | None) -> str:
    return f"{value:3.0f} W" if value is not None else ""


def _of(used: float | None, total: float | None) -> str:
    if used is None:
        return ""
    return gibibytes(used) if total is None else f"{used / 2**30:.1f} of {gibibytes(total)}"


def _total(sample: Sample) -> float | None:
    known = sample.mem_used_bytes is not None and sample.mem_available_bytes is not None
    return (sample.mem_used_bytes or 0) + (sample.mem_available_bytes or 0) if known else None


def frame(
    lanes: Mapping[int, str],
    progress: Mapping[tuple[int, Branch], Progress],
    devices: Devices,
    *,
    now: float,
    elapsed_s: float,
    height: int,
) -> RenderableType:
    """`lanes` are their devices by index. Of `height` lines one is left free; many lanes take a line each."""
    warnings = devices.warnings[:_MOST_WARNINGS]
    rest = height - 4 - len(warnings)  # an empty line, the heading, the time, and the free one
    full = _LINES_OF_A_LANE * len(lanes) + (len(devices) + 1) // 2 <= rest
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, style="dim")
    for _ in BRANCHES:
        table.add_column(ratio=1, no_wrap=True)
    table.add_row("", *(Text(branch, style="bold") for branch in BRANCHES))
    for index, device in lanes.items():
        cells = (progress[index, branch].cell(now, full=full) for branch in BRANCHES)
        table.add_row(f"lane {index}\n{device}" if full else f"{index} {device}", *cells)
    shown: list[RenderableType] = ["", table]
    if len(devices):
        rows = rest - len(lanes) * (_LINES_OF_A_LANE if full else 1)
        shown += ["", devices.lines(rows - 1)] if rows > len(devices) else [devices.lines(rows)]
    shown += [Text(text, style="yellow", no_wrap=True, overflow="ellipsis") for text in warnings]
    return Group(*shown, Text(f"{clock_text(elapsed_s)} elapsed", style="dim"))
