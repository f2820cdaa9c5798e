"""Samples a run once a second and writes ``telemetry.csv``: its processes, its GPUs, the machine.

Energy is that of the GPUs alone. No failure here ends a run: a process that vanishes, a driver without power
readings or a full disk only leave a blank or a shorter file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sparkgpu.core.host.meters import GpuMeter, MachineMeter, ProcessTree, Rate
from sparkgpu.core.host.telemetry import Sample, append_sample, set_aside_older


class Monitor:
    """Context manager around a sampling thread.

    `processes` is called at every sample for the process ids of the run, with a name for each; their
    descendants are included. `gpus` are the UUIDs of the GPUs to watch: None for all of the machine, empty
    for none. `newest` is the last sample. Read `peak_rss_bytes`, `energy_wh` (None if no GPU reported its
    power) and `own_cpu_s` (the CPU seconds that the sampling took) after the end. `set_aside` is the new name
    of a file of an earlier version in the place of `path`.
    """

    def __init__(
        self,
        path: Path,
        processes: Callable[[], Mapping[int, str]],
        interval_s: float = 1.0,
        *,
        gpus: Iterable[str] | None = None,
    ) -> None:
        self._path = path
        self._tree = ProcessTree(processes)
        self._interval_s = interval_s
        self._gpus = GpuMeter(gpus, self._tree.owner)
        self._machine = MachineMeter()
        self._read, self._written = Rate(), Rate()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self.newest: Sample | None = None
        self.set_aside: Path | None = None
        self.peak_rss_bytes = 0
        self.own_cpu_s = 0.0

    @property
    def energy_wh(self) -> float | None:
        return self._gpus.energy_wh

    def __enter__(self) -> Self:
        with suppress(OSError):
            self.set_aside = set_aside_older(self._path)
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
                self.own_cpu_s = time.thread_time()
                stopping = self._stop.is_set()
                self._stop.wait(max(0.0, due - time.monotonic()))
        finally:
            self._gpus.close()

    def _sample(self, elapsed_s: float) -> None:
        use = self._tree.measure()
        self.peak_rss_bytes = max(self.peak_rss_bytes, use.rss_bytes)
        now = time.monotonic()
        sample = Sample(
            at=time.time(),
            elapsed_s=elapsed_s,
            rss_bytes=use.rss_bytes,
            cpu_s=use.cpu_s,
            load1=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            disk_read_bytes_per_s=self._read.of(use.read_bytes, now),
            disk_write_bytes_per_s=self._written.of(use.written_bytes, now),
            **self._machine.measure(now),
            gpus=self._gpus.measure(),
        )
        with suppress(OSError):  # a full disk must cost only samples, not the run
            append_sample(self._path, sample)
        self.newest = sample
