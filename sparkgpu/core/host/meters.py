"""What telemetry measures: the processes of a run, and the GPUs through NVML.

Limits: memory is the resident set (RSS) summed over the processes, so a page that two of them share counts
twice; PSS would count it once, but costs tens of milliseconds per process. A process that lives only
between two looks is not seen. GPUs are asked without a CUDA context and without torch; what a driver does
not tell stays None. PCIe and NVLink come from the driver's counters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from sparkgpu.core.host.gpus import answer, handles
from sparkgpu.core.host.telemetry import GpuSample

_KIB = 1024
_ALL_LINKS = 0xFFFFFFFF
_WALK_EVERY_S = 5.0  # the search for descendants reads all of /proc


@dataclass(frozen=True, kw_only=True)
class Use:
    """Resident bytes now; CPU seconds and bytes read from and written to disks since the processes began."""

    rss_bytes: int
    cpu_s: float
    read_bytes: int
    written_bytes: int


class ProcessTree:
    """`roots` is called for the process ids from which all others descend, with a name for each."""

    def __init__(self, roots: Callable[[], Mapping[int, str]]) -> None:
        self._asked = roots
        self._roots: dict[int, str] = {}
        self._known: dict[int, psutil.Process] = {}
        # These include ended processes, so that the sums never fall.
        self._cpu_s: dict[psutil.Process, float] = {}
        self._disk: dict[psutil.Process, tuple[int, int]] = {}
        self._next_walk = 0.0

    def measure(self) -> Use:
        try:
            roots = dict(self._asked())
        except Exception:  # the caller's list may change while it is read; that must not end the sampling
            roots = {}
        if time.monotonic() >= self._next_walk or roots.keys() - self._roots.keys():
            self._walk(roots)
        rss_bytes = 0
        for pid, process in list(self._known.items()):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    rss_bytes += process.memory_info().rss
                self._cpu_s[process] = times.user + times.system
            except psutil.Error:
                del self._known[pid]
                continue
            with suppress(psutil.Error, OSError, AttributeError):  # not every system tells it
                disk = process.io_counters()
                self._disk[process] = disk.read_bytes, disk.write_bytes
        return Use(
            rss_bytes=rss_bytes,
            cpu_s=sum(self._cpu_s.values()),
            read_bytes=sum(read for read, _ in self._disk.values()),
            written_bytes=sum(written for _, written in self._disk.values()),
        )

    def owner(self, pid: int) -> str | None:
        """The name of the nearest root above a process; None if it is not one of the run's."""
        if pid in self._roots:
            return self._roots[pid]
        with suppress(psutil.Error):
            for parent in psutil.Process(pid).parents():
                if parent.pid in self._roots:
                    return self._roots[parent.pid]
        return None

    def _walk(self, roots: dict[int, str]) -> None:
        for pid in roots.keys() - self._known.keys():
            with suppress(psutil.Error):
                self._known[pid] = psutil.Process(pid)
        for pid in roots.keys() & self._known.keys():
            with suppress(psutil.Error):
                for child in self._known[pid].children(recursive=True):
                    self._known.setdefault(child.pid, child)
        self._roots = roots
        self._next_walk = time.monotonic() + _WALK_EVERY_S


class Rates:
    """The growth per second of counters between two looks."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def of(self, name: str, value: float) -> float | None:
        """None at the first look, and where the counter began again."""
        now = time.monotonic()
        before, at_s = self._last.get(name, (math.inf, now))
        self._last[name] = value, now
        return (value - before) / (now - at_s) if value >= before and now > at_s else None


@dataclass(frozen=True)
class _Gpu:
    index: int
    handle: Any
    uuid: str
    rates: Rates = field(default_factory=Rates)


class GpuMeter:
    """The GPUs with these UUIDs.

    `owner` names the part of the run to which a process belongs, None if it is not of the run.
    """

    def __init__(self, uuids: Collection[str], owner: Callable[[int], str | None]) -> None:
        self._uuids = uuids
        self._owner = owner
        self._gpus: list[_Gpu] = []
        self._nvml: Any = None
        if uuids:
            import pynvml  # import in the caller's thread, not in the sampling thread

            self._nvml = pynvml

    def open(self) -> None:
        if self._nvml is None:
            return
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlInit()
            self._gpus = [
                _Gpu(gpu.index, handle, gpu.uuid)
                for gpu, handle in handles(self._nvml)
                if gpu.uuid in self._uuids
            ]

    def close(self) -> None:
        if self._nvml is not None:
            answer(self._nvml, "nvmlShutdown")

    def measure(self) -> tuple[GpuSample, ...]:
        return tuple(self._measure(gpu, self._nvml) for gpu in self._gpus)

    def _measure(self, gpu: _Gpu, nvml: Any) -> GpuSample:
        rates = answer(nvml, "nvmlDeviceGetUtilizationRates", gpu.handle)
        memory = answer(nvml, "nvmlDeviceGetMemoryInfo", gpu.handle)
        milliwatt = answer(nvml, "nvmlDeviceGetPowerUsage", gpu.handle)
        ours, others = self._processes(gpu, nvml)
        return GpuSample(
            gpu=gpu.index,
            gpu_util=rates and rates.gpu,
            gpu_mem_bytes=memory and memory.used,
            gpu_power_w=None if milliwatt is None else milliwatt / 1000,
            gpu_uuid=gpu.uuid,
            gpu_mem_total_bytes=memory and memory.total,
            **_traffic(gpu, nvml),
            gpu_processes=ours,
            gpu_other_processes=others,
        )

    def _processes(self, gpu: _Gpu, nvml: Any) -> tuple[tuple[str, ...], int | None]:
        """The run's processes on the GPU, and the number of others."""
        running = answer(nvml, "nvmlDeviceGetComputeRunningProcesses", gpu.handle)
        if running is None:
            return (), None
        owners = {pid: self._owner(pid) for pid in sorted({process.pid for process in running})}
        ours = tuple(f"{owner}:{pid}" for pid, owner in owners.items() if owner is not None)
        return ours, len(owners) - len(ours)


def _traffic(gpu: _Gpu, nvml: Any) -> dict[str, float | None]:
    """Bytes per second over PCIe and NVLink, by the fields of a `GpuSample`."""
    counters = {
        "gpu_pcie_rx_bytes_per_s": (nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1),
        "gpu_pcie_tx_bytes_per_s": (nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1),
        "gpu_nvlink_rx_bytes_per_s": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS, _KIB),
        "gpu_nvlink_tx_bytes_per_s": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS, _KIB),
    }
    asked = [(number, scope) for number, scope, _ in counters.values()]
    answers = answer(nvml, "nvmlDeviceGetFieldValues", gpu.handle, asked)
    return {
        name: gpu.rates.of(name, found.value.ullVal * unit)
        for (name, (_, _, unit)), found in zip(counters.items(), answers or (), strict=False)
        if found.nvmlReturn == nvml.NVML_SUCCESS
    }
