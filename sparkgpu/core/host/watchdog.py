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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

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
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


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
        return (
            now.is_debugged
            or before.processes != now.processes
            or before.used_until(now) >= _BUSY * passed
            or before.runnable_until(now) >= _RUNNABLE * passed
            or now.moved - before.moved >= _BYTES_PER_S * passed
            or now.stored - before.stored >= _STORED_PER_S * passed
            or 0.0 < self._disk_s < _DISK_S
        )


@dataclass(kw_only=True)
class _Measured:
    """What a process tree has used so far: processor seconds, used and waited for, by thread; and bytes."""

    processes: set[int] = field(default_factory=set)
    used_s: dict[int, float] = field(default_factory=dict)
    waited_s: dict[int, float] = field(default_factory=dict)
    moved: int = 0
    stored: int = 0
    waits_for_disk: bool = False
    is_debugged: bool = False

    def used_until(self, later: _Measured) -> float:
        """Processor seconds used since then, by the threads that still exist."""
        return sum(_since(self.used_s, later.used_s).values())

    def runnable_until(self, later: _Measured) -> float:
        """Processor seconds used or waited for since then, by the busiest of those threads."""
        used, waited = _since(self.used_s, later.used_s), _since(self.waited_s, later.waited_s)
        busiest = sorted((used[thread] + waited[thread] for thread in used), reverse=True)
        return sum(busiest[:_RUNNING_THREADS])


def _since(before: dict[int, float], later: dict[int, float]) -> dict[int, float]:
    return {thread: seconds - before.get(thread, 0.0) for thread, seconds in later.items()}


def _measured(pid: int) -> _Measured:
    found = _Measured()
    for process in family(pid):
        found.processes.add(process.pid)
        folder = Path(f"/proc/{process.pid}")
        with contextlib.suppress(OSError, ValueError):
            status = (folder / "status").read_text(encoding="ascii", errors="replace")
            found.is_debugged |= "\nTracerPid:\t0\n" not in status
        with contextlib.suppress(OSError, ValueError):
            moved = dict(
                line.split(": ") for line in (folder / "io").read_text(encoding="ascii").splitlines()
            )
            found.moved += int(moved["rchar"]) + int(moved["wchar"])
            found.stored += int(moved["read_bytes"]) + int(moved["write_bytes"])
        for thread, state, used_s, waited_s in _threads(folder):
            found.used_s[thread], found.waited_s[thread] = used_s, waited_s
            found.waits_for_disk |= state == "D"
    return found


def _threads(folder: Path) -> Iterator[tuple[int, str, float, float]]:
    """Each thread of a process: id, state, and the seconds that it used a processor or waited for one."""
    with contextlib.suppress(OSError):
        for task in (folder / "task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name, in brackets, may contain any character.
                words = (
                    (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                )
                used_s, waited_s = (int(words[11]) + int(words[12])) * _TICK_S, 0.0
                with contextlib.suppress(OSError):
                    waited_s = int((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
                yield int(task.name), words[0], used_s, waited_s


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants, as far as they still exist."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


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
