"""Memory, CPU time and disk traffic of named processes and all their descendants.

Limits: memory is the resident set (RSS) summed over the processes, so a page that two of them share counts
twice; PSS would count it once, but costs tens of milliseconds per process. A process that lives only between
two looks is not seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

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
