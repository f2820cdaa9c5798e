"""What telemetry measures: the processes of a run, the whole machine, and the GPUs through NVML.

Limits: memory is the resident set (RSS) summed over the processes, so a page that two of them share counts
twice; PSS would count it once, but costs tens of milliseconds per process. A process that lives only
between two looks is not seen. GPUs are asked without a CUDA context and without torch; what a driver does
not tell stays None. PCIe and NVLink come from the driver's counters.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from sparkgpu.core.host.gpus import answer, handles
from sparkgpu.core.host.telemetry import GpuSample

_KIB = 1024
_ALL_LINKS = 0xFFFFFFFF
_WALK_SHARE = 1 / 200  # share of the time for finding descendants, which reads all of /proc


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
        start = time.monotonic()
        for pid in roots.keys() - self._known.keys():
            with suppress(psutil.Error):
                self._known[pid] = psutil.Process(pid)
        for pid in roots.keys() & self._known.keys():
            with suppress(psutil.Error):
                for child in self._known[pid].children(recursive=True):
                    self._known.setdefault(child.pid, child)
        self._roots = roots
        end = time.monotonic()
        self._next_walk = end + (end - start) / _WALK_SHARE


class Rate:
    """The growth per second of one counter between two looks."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def of(self, value: float | None, at_s: float) -> float | None:
        """None at the first look, without a value, and where the counter began again."""
        before, self._last = self._last, None if value is None else (value, at_s)
        if value is None or before is None or value < before[0] or at_s <= before[1]:
            return None
        return (value - before[0]) / (at_s - before[1])


class MachineMeter:
    """Measures what the whole machine does between two looks of one thread: the first has no rates."""

    def __init__(self) -> None:
        self._received, self._sent = Rate(), Rate()
        self._is_first = True

    def measure(self, at_s: float) -> dict[str, float | None]:
        """Fields of a `Sample`. The network is without loopback."""
        busy, memory = psutil.cpu_percent(interval=None), psutil.virtual_memory()
        links = [link for name, link in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        cpu, self._is_first = None if self._is_first else busy, False
        return {
            "cpu_percent": cpu,
            "mem_used_bytes": memory.total - memory.available,
            "mem_available_bytes": memory.available,
            "net_rx_bytes_per_s": self._received.of(sum(link.bytes_recv for link in links), at_s),
            "net_tx_bytes_per_s": self._sent.of(sum(link.bytes_sent for link in links), at_s),
        }


@dataclass
class _Gpu:
    index: int
    handle: Any
    uuid: str = ""
    power_w: float | None = None
    at: float = 0.0
    traffic: dict[str, Rate] = field(default_factory=lambda: defaultdict(Rate))


class GpuMeter:
    """The GPUs with these UUIDs: None for all, empty for none. `energy_wh` is None until one tells its power.

    `owner` names the part of the run to which a process belongs, None if it is not of the run.
    """

    def __init__(self, uuids: Iterable[str] | None, owner: Callable[[int], str | None]) -> None:
        self._uuids = None if uuids is None else frozenset(uuids)
        self._owner = owner
        self._gpus: list[_Gpu] = []
        self._opened = False
        self._nvml: Any = None
        if self._uuids is None or self._uuids:
            import pynvml  # import in the caller's thread, not in the sampling thread

            self._nvml = pynvml
        self.energy_wh: float | None = None

    def open(self) -> None:
        if self._nvml is None:
            return
        nvml = self._nvml
        with suppress(nvml.NVMLError):
            nvml.nvmlInit()
            self._opened = True
            self._gpus = [
                _Gpu(index=gpu.index, handle=handle, uuid=gpu.uuid)
                for gpu, handle in handles(nvml)
                if self._uuids is None or gpu.uuid in self._uuids
            ]

    def close(self) -> None:
        if self._opened:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def measure(self) -> tuple[GpuSample, ...]:
        return tuple(self._measure(gpu, self._nvml) for gpu in self._gpus)

    def _measure(self, gpu: _Gpu, nvml: Any) -> GpuSample:
        rates = answer(nvml, "nvmlDeviceGetUtilizationRates", gpu.handle)
        memory = answer(nvml, "nvmlDeviceGetMemoryInfo", gpu.handle)
        milliwatt = answer(nvml, "nvmlDeviceGetPowerUsage", gpu.handle)
        now, power_w = time.monotonic(), None if milliwatt is None else milliwatt / 1000
        if power_w is not None and gpu.power_w is not None:
            # Trapezoidal rule between two samples; a gap in the readings adds nothing.
            joule = (power_w + gpu.power_w) / 2 * (now - gpu.at)
            self.energy_wh = (self.energy_wh or 0.0) + joule / 3600
        gpu.power_w, gpu.at = power_w, now
        ours, others = self._processes(gpu, nvml)
        return GpuSample(
            gpu=gpu.index,
            gpu_util=rates and rates.gpu,
            gpu_mem_bytes=memory and memory.used,
            gpu_power_w=power_w,
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
    now = time.monotonic()
    return {
        name: gpu.traffic[name].of(
            found.value.ullVal * unit if found.nvmlReturn == nvml.NVML_SUCCESS else None, now
        )
        for (name, (_, _, unit)), found in zip(counters.items(), answers or (), strict=False)
    }
