"""Samples memory, CPU time and GPUs of a run once a second and writes ``telemetry.csv``.

Limits: memory is the resident set (RSS) summed over the processes, so a page that two of them share counts
twice; PSS would count it once, but costs tens of milliseconds per process. A process that lives only between
two samples is not seen. Energy is that of the GPUs alone. No failure here ends a run: a process that
vanishes, a driver without power readings or a full disk only leave a blank or a shorter file.
"""

from __future__ import annotations

import csv
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from sparkgpu.host.gpus import handles

COLUMNS = (
    "at", "elapsed_s", "rss_bytes", "cpu_s", "load1", "gpu", "gpu_util", "gpu_mem_bytes", "gpu_power_w",
)  # fmt: skip
_WALK_SHARE = 1 / 200  # share of the time for finding descendants, which reads all of /proc


class Monitor:
    """Context manager around a sampling thread.

    `pids` is called at every sample for the processes of the run; their descendants are included. `gpus` are
    the UUIDs of the GPUs to watch: None for all of the machine, empty for none. Read `peak_rss_bytes` and
    `energy_wh` (None if no GPU reported its power) after the end.

    A row is one sample of one GPU (or of none, with blank GPU fields): seconds since the epoch, seconds since
    the start, bytes, CPU seconds used so far by the processes of the run, the system's load over one minute,
    NVML's index of the GPU, per cent of time busy, bytes in use on it by all processes, watts.
    """

    def __init__(
        self,
        path: Path,
        pids: Callable[[], Iterable[int]],
        interval_s: float = 1.0,
        *,
        gpus: Iterable[str] | None = None,
    ) -> None:
        self._path = path
        self._tree = _ProcessTree(pids)
        self._interval_s = interval_s
        self._gpus = _Gpus(None if gpus is None else frozenset(gpus))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self.peak_rss_bytes = 0

    @property
    def energy_wh(self) -> float | None:
        return self._gpus.energy_wh

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=5.0)  # a hung driver must not delay the end of a run

    def _run(self) -> None:
        start = time.monotonic()
        self._gpus.open()
        try:
            stopping = False
            while not stopping:
                # The last sample comes after the request to stop, so even short runs have two.
                due = time.monotonic() + self._interval_s
                self._sample(time.monotonic() - start)
                stopping = self._stop.is_set()
                self._stop.wait(max(0.0, due - time.monotonic()))
        finally:
            self._gpus.close()

    def _sample(self, elapsed_s: float) -> None:
        rss_bytes, cpu_s = self._tree.measure()
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss_bytes)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else ""
        host = (f"{time.time():.3f}", f"{elapsed_s:.3f}", rss_bytes, f"{cpu_s:.2f}", load)
        self._append([(*host, *gpu) for gpu in self._gpus.measure() or [("", "", "", "")]])

    def _append(self, rows: list[tuple[Any, ...]]) -> None:
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        with suppress(OSError):  # a full disk must cost only samples, not the run
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Opened again for each sample: a resumed run appends, and a moved folder is no error.
            with self._path.open("a", encoding="ascii") as file:
                if file.tell() == 0:
                    writer.writerow(COLUMNS)
                writer.writerows(rows)
                file.write(text.getvalue())


class _ProcessTree:
    """Memory and CPU time of processes and all their descendants."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._known: dict[int, psutil.Process] = {}
        self._cpu_s: dict[psutil.Process, float] = {}  # includes ended processes, so that the sum never falls
        self._roots: set[int] = set()
        self._next_walk = 0.0

    def measure(self) -> tuple[int, float]:
        """Resident bytes now, and CPU seconds used since the processes began."""
        try:
            roots = set(self._pids())
        except Exception:  # the caller's list may change while it is read; that must not end the sampling
            roots = set()
        if time.monotonic() >= self._next_walk or roots - self._roots:
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
        return rss_bytes, sum(self._cpu_s.values())

    def _walk(self, roots: set[int]) -> None:
        start = time.monotonic()
        for pid in roots - self._known.keys():
            with suppress(psutil.Error):
                self._known[pid] = psutil.Process(pid)
        for pid in roots & self._known.keys():
            with suppress(psutil.Error):
                for child in self._known[pid].children(recursive=True):
                    self._known.setdefault(child.pid, child)
        self._roots = roots
        end = time.monotonic()
        self._next_walk = end + (end - start) / _WALK_SHARE


@dataclass
class _Gpu:
    index: int
    handle: Any
    power_w: float | None = None
    at: float = 0.0


class _Gpus:
    """The GPUs through NVML: no CUDA context, no torch."""

    def __init__(self, uuids: frozenset[str] | None) -> None:
        self._uuids = uuids
        self._gpus: list[_Gpu] = []
        self._opened = False
        self._nvml: Any = None
        if uuids is None or uuids:
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
                _Gpu(index=gpu.index, handle=handle)
                for gpu, handle in handles(nvml)
                if self._uuids is None or gpu.uuid in self._uuids
            ]

    def close(self) -> None:
        if self._opened:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def measure(self) -> list[tuple[Any, ...]]:
        return [self._measure(gpu, self._nvml) for gpu in self._gpus]

    def _measure(self, gpu: _Gpu, nvml: Any) -> tuple[Any, ...]:
        busy = memory = power_w = None
        # Try each reading separately: drivers and virtual GPUs lack different ones.
        with suppress(nvml.NVMLError):
            busy = nvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu
        with suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(gpu.handle).used
        with suppress(nvml.NVMLError):
            power_w = nvml.nvmlDeviceGetPowerUsage(gpu.handle) / 1000
        now = time.monotonic()
        if power_w is not None and gpu.power_w is not None:
            # Trapezoidal rule between two samples; a gap in the readings adds nothing.
            joule = (power_w + gpu.power_w) / 2 * (now - gpu.at)
            self.energy_wh = (self.energy_wh or 0.0) + joule / 3600
        gpu.power_w, gpu.at = power_w, now
        return gpu.index, busy, memory, f"{power_w:.1f}" if power_w is not None else None
