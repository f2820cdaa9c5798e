"""The devices in the display: a line for each with utilisation, memory and power, and those that idle.

Only GPUs can idle: a CPU's lanes share its cores, so their use says little about any one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sparkgpu.host.idle import idle_percent
from sparkgpu.words import clean, gibibytes

if TYPE_CHECKING:
    from sparkgpu.host.telemetry import GpuSample, Sample
    from sparkgpu.plan.plan import LanePlan

_WATCHED = 30  # samples, one a second


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
        assert self._sample is not None
        if rows >= len(self):
            return self._one_each(self._sample)
        if rows >= (len(self) + 1) // 2:
            return self._two_each(self._sample)
        return Text(self._all(self._sample), style="dim", no_wrap=True, overflow="ellipsis")

    def _name(self, gpu: GpuSample) -> str:
        return self._names.get(gpu.gpu_uuid, f"GPU {gpu.gpu}")

    def _one_each(self, sample: Sample) -> RenderableType:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(no_wrap=True, style="dim")
        grid.add_column(ratio=1)
        for _ in range(3):
            grid.add_column(no_wrap=True, justify="right")
        for gpu in sample.gpus:
            grid.add_row(
                self._name(gpu),
                _bar(gpu.gpu_util),
                f"{_percent(gpu.gpu_util)} busy",
                _of(gpu.gpu_mem_bytes, gpu.gpu_mem_total_bytes),
                _watts(gpu.gpu_power_w),
            )
        grid.add_row(
            "cpu",
            _bar(sample.cpu_percent),
            f"{_percent(sample.cpu_percent)} busy",
            _of(sample.mem_used_bytes, _total(sample)),
            f"run {gibibytes(sample.rss_bytes)}" if sample.rss_bytes is not None else "",
        )
        return grid

    def _two_each(self, sample: Sample) -> RenderableType:
        grid = Table.grid(padding=(0, 2), expand=True)
        for _ in range(2):
            grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        cells = [
            f"{self._name(gpu):<7} {_percent(gpu.gpu_util)}  "
            f"{_of(gpu.gpu_mem_bytes, gpu.gpu_mem_total_bytes)}  {_watts(gpu.gpu_power_w)}"
            for gpu in sample.gpus
        ]
        cells.append(
            f"{'cpu':<7} {_percent(sample.cpu_percent)}  {_of(sample.mem_used_bytes, _total(sample))}"
        )
        for place in range(0, len(cells), 2):
            grid.add_row(*cells[place : place + 2])
        return grid

    def _all(self, sample: Sample) -> str:
        parts = [f"{len(sample.gpus)} GPUs", f"{_range(gpu.gpu_util for gpu in sample.gpus)} % busy"]
        watts = [gpu.gpu_power_w for gpu in sample.gpus if gpu.gpu_power_w is not None]
        parts += [f"{sum(watts):,.0f} W"] if watts else []
        return " · ".join([*parts, f"cpu {_percent(sample.cpu_percent).strip()} busy"])


def _bar(percent: float | None) -> RenderableType:
    from rich.progress_bar import ProgressBar

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


def _range(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{min(known):.0f}–{max(known):.0f}" if known else "–"
