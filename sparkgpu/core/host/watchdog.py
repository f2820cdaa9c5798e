"""Tells from outside whether a process works or hangs, by its reports and by the kernel's counters.

A hang is silence. A process that works reports something, uses a processor or waits for a busy one, reads or
writes, or waits for a disk. The work of a descendant counts as well. Not every fault is silent: an endless
loop looks like work.

Linux only, like the runs themselves. On a kernel without scheduler statistics (``schedstat``), waiting for a
processor does not count.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sparkgpu.core.host.processes import family

STACK_SIGNAL = signal.SIGUSR2
"""On this signal a worker writes the Python stacks of all its threads to its log, even while they wait."""

LOOK_EVERY_S = 3.0
_BUSY = 0.15
"""Share of one processor's time that counts as work. An idle Spark and H2O use .02."""
_RUNNABLE, _RUNNING_THREADS = 0.7, 3
"""Share of the time in which the busiest threads use a processor or wait for one. A computing thread always
does one of the two. An idle thread that checks the clock also waits, and on a crowded machine for long."""
_BYTES_PER_S = 100_000
"""Bytes read and written per second. An idle JVM that answers status questions moves 30,000."""
_STORED_PER_S = 16_384
"""Bytes per second to and from disks only."""
_DISK_S = 600.0  # limit for waiting for a disk that does not answer; such a thread cannot be killed either
_STACKS_S = 1.5
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


class Vitals:
    """The signs of life of a process and its descendants.

    `idle_s` counts the seconds of silence. Time without a check (a sleeping laptop, a suspended run) does not
    count, since nothing is known about it.
    """

    def __init__(self, pid: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.idle_s = 0.0
        self._pid = pid
        self._clock = clock
        self._looked = clock()
        self._disk_s = 0.0
        self._before = _measured(pid)

    def made_progress(self) -> None:
        """Record that the process reported something, or has a reason to wait."""
        self.idle_s = 0.0

    def look(self) -> float:
        """Check the processes if a check is due. Returns `idle_s`."""
        now = self._clock()
        passed = now - self._looked
        if passed < LOOK_EVERY_S:
            return self.idle_s
        self._looked = now
        before, self._before = self._before, _measured(self._pid)
        if self._works(before, self._before, passed):
            self.idle_s = 0.0
        else:
            self.idle_s += min(passed, 2 * LOOK_EVERY_S)
        return self.idle_s

    def _works(self, before: _Measured, now: _Measured, passed: float) -> bool:
        self._disk_s = self._disk_s + passed if now.waits_for_disk else 0.0
        # The difference of two counters drops what did not grow, so also the threads that ended.
        used = now.used_ns - before.used_ns
        runnable = used + (now.waited_ns - before.waited_ns)
        return (
            before.processes != now.processes
            or used.total() >= _BUSY * passed * 1e9
            or sum(sorted(runnable.values())[-_RUNNING_THREADS:]) >= _RUNNABLE * passed * 1e9
            or now.moved - before.moved >= _BYTES_PER_S * passed
            or now.stored - before.stored >= _STORED_PER_S * passed
            or 0.0 < self._disk_s < _DISK_S
        )


@dataclass(kw_only=True)
class _Measured:
    """What a process tree has used so far: processor time, used and waited for, by thread; and bytes."""

    processes: set[int] = field(default_factory=set)
    used_ns: Counter[int] = field(default_factory=Counter)
    waited_ns: Counter[int] = field(default_factory=Counter)
    moved: int = 0
    stored: int = 0
    waits_for_disk: bool = False


def _measured(pid: int) -> _Measured:
    found = _Measured()
    for process in family(pid):
        found.processes.add(process.pid)
        with contextlib.suppress(psutil.Error):
            moved = process.io_counters()
            found.moved += moved.read_chars + moved.write_chars
            found.stored += moved.read_bytes + moved.write_bytes
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                _measure_thread(task, found)
    return found


def _measure_thread(task: Path, found: _Measured) -> None:
    with contextlib.suppress(OSError):
        # The name, in brackets, may contain any character.
        words = (task / "stat").read_bytes().rpartition(b")")[2].split()
        found.waits_for_disk |= words[0] == b"D"
        found.used_ns[int(task.name)] = (int(words[11]) + int(words[12])) * _TICK_NS
        found.waited_ns[int(task.name)] = int((task / "schedstat").read_bytes().split()[1])


@contextlib.contextmanager
def watch_self(patience_s: float, log: Path) -> Iterator[None]:
    """Within the block, end this process with status 5 after `patience_s` silent seconds; stacks go to `log`.

    For the last steps of a run, when no other process watches it.
    """
    ended = threading.Event()
    vitals = Vitals(os.getpid())

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            if vitals.look() >= patience_s:
                with log.open("a", encoding="utf-8") as file:
                    faulthandler.dump_traceback(file, all_threads=True)
                os.write(
                    2,
                    f"sparkgpu: the run hung in its last steps; its stacks are in {log}.\n".encode(),
                )
                os._exit(5)

    thread = threading.Thread(target=look, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def dump_stacks_on_signal() -> None:
    """Make this process write its stacks to standard error on `STACK_SIGNAL`."""
    faulthandler.enable(file=sys.__stderr__ or sys.stderr)
    faulthandler.register(STACK_SIGNAL, file=sys.__stderr__ or sys.stderr, all_threads=True)


def dump_stacks(pid: int) -> None:
    """Make a worker and the JVMs below it print the stacks of all their threads.

    The worker must have called `dump_stacks_on_signal`, since the signal kills other processes. Stopped
    processes are continued, since they could not answer otherwise.
    """
    for process in family(pid):
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)
            if process.pid == pid:
                process.send_signal(STACK_SIGNAL)
            elif process.name() == "java":
                process.send_signal(signal.SIGQUIT)
    time.sleep(_STACKS_S)
