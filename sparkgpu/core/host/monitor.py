"""Samples a run once a second and writes ``telemetry.csv``: its processes, its GPUs, the machine.

No failure here ends a run: a process that vanishes, a driver without power readings or a full disk only leave
a blank or a shorter file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from sparkgpu.core.host.lines import end_cut_line
from sparkgpu.core.host.meters import GpuMeter, ProcessTree, Rates
from sparkgpu.core.host.telemetry import Sample, append_sample


class Monitor:
    """Context manager around a sampling thread.

    `processes` is called at every sample for the process ids of the run, with a name for each; their
    descendants are included. `gpus` are the UUIDs of the GPUs to watch. `newest` is the last sample.
    """

    def __init__(
        self,
        path: Path,
        processes: Callable[[], Mapping[int, str]],
        interval_s: float = 1.0,
        *,
        gpus: Collection[str],
    ) -> None:
        self._path = path
        self._tree = ProcessTree(processes)
        self._interval_s = interval_s
        self._gpus = GpuMeter(gpus, self._tree.owner)
        self._rates = Rates()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self.newest: Sample | None = None

    def __enter__(self) -> Self:
        end_cut_line(self._path)
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
        use, rates = self._tree.measure(), self._rates
        busy, memory = psutil.cpu_percent(), psutil.virtual_memory()
        links = [link for name, link in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        self.newest = Sample(
            at=time.time(),
            elapsed_s=elapsed_s,
            rss_bytes=use.rss_bytes,
            cpu_s=use.cpu_s,
            load1=os.getloadavg()[0],
            cpu_percent=None if self.newest is None else busy,  # since the last sample
            mem_used_bytes=memory.total - memory.available,
            mem_available_bytes=memory.available,
            disk_read_bytes_per_s=rates.of("read", use.read_bytes),
            disk_write_bytes_per_s=rates.of("written", use.written_bytes),
            net_rx_bytes_per_s=rates.of("received", sum(link.bytes_recv for link in links)),
            net_tx_bytes_per_s=rates.of("sent", sum(link.bytes_sent for link in links)),
            gpus=self._gpus.measure(),
        )
        with suppress(OSError):  # a full disk must cost only samples, not the run
            append_sample(self._path, self.newest)
