"""Measures GPUs through NVML: no CUDA context, no torch. What a driver does not tell stays None.

PCIe and NVLink come from counters. Drivers without PCIe's counter measure it over 20 milliseconds on request,
during which the sampling thread waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sparkgpu.host.gpus import handles
from sparkgpu.host.rates import Rate
from sparkgpu.host.telemetry import GpuSample

_KIB = 1024
_ALL_LINKS = 0xFFFFFFFF
_RATES = ("pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx")


@dataclass
class _Gpu:
    index: int
    handle: Any
    uuid: str = ""
    power_w: float | None = None
    at: float = 0.0
    rates: dict[str, Rate] = field(default_factory=lambda: {name: Rate() for name in _RATES})


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
        busy = used = total = power_w = None
        # Try each reading separately: drivers and virtual GPUs lack different ones.
        with suppress(nvml.NVMLError):
            busy = nvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu
        with suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(gpu.handle)
            used, total = memory.used, memory.total
        with suppress(nvml.NVMLError):
            power_w = nvml.nvmlDeviceGetPowerUsage(gpu.handle) / 1000
        now = time.monotonic()
        if power_w is not None and gpu.power_w is not None:
            # Trapezoidal rule between two samples; a gap in the readings adds nothing.
            joule = (power_w + gpu.power_w) / 2 * (now - gpu.at)
            self.energy_wh = (self.energy_wh or 0.0) + joule / 3600
        gpu.power_w, gpu.at = power_w, now
        ours, others = self._processes(gpu, nvml)
        return GpuSample(
            gpu=gpu.index,
            gpu_util=busy,
            gpu_mem_bytes=used,
            gpu_power_w=power_w,
            gpu_uuid=gpu.uuid,
            gpu_mem_total_bytes=total,
            **{f"gpu_{name}_bytes_per_s": value for name, value in _traffic(gpu, nvml).items()},
            gpu_processes=ours,
            gpu_other_processes=others,
        )

    def _processes(self, gpu: _Gpu, nvml: Any) -> tuple[tuple[str, ...], int | None]:
        """The run's processes on the GPU, and the number of others."""
        try:
            pids = sorted({process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)})
        except nvml.NVMLError:
            return (), None
        owners = {pid: self._owner(pid) for pid in pids}
        ours = tuple(f"{owner}:{pid}" for pid, owner in owners.items() if owner is not None)
        return ours, len(pids) - len(ours)


def _traffic(gpu: _Gpu, nvml: Any) -> dict[str, float | None]:
    """Bytes per second over PCIe and NVLink, by name."""
    fields = {
        "pcie_rx": (nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1),
        "pcie_tx": (nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1),
        "nvlink_rx": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS, _KIB),
        "nvlink_tx": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS, _KIB),
    }
    counters: dict[str, float] = {}
    with suppress(nvml.NVMLError):
        asked = [(number, scope) for number, scope, _ in fields.values()]
        answers = nvml.nvmlDeviceGetFieldValues(gpu.handle, asked)
        for (name, (_, _, unit)), answer in zip(fields.items(), answers, strict=True):
            if answer.nvmlReturn == nvml.NVML_SUCCESS:
                counters[name] = float(answer.value.ullVal * unit)
    now = time.monotonic()
    found = {name: rate.of(counters.get(name), now) for name, rate in gpu.rates.items()}
    for name, counter in (
        ("pcie_rx", nvml.NVML_PCIE_UTIL_RX_BYTES), ("pcie_tx", nvml.NVML_PCIE_UTIL_TX_BYTES),
    ):  # fmt: skip
        if name not in counters:
            with suppress(nvml.NVMLError):
                found[name] = float(nvml.nvmlDeviceGetPcieThroughput(gpu.handle, counter) * _KIB)
    return found
