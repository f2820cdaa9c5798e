"""Tells a process that works from one that hangs, from outside: by its reports and by what the kernel counts.

A hang is silence. Whoever works reports something, uses a processor or waits for one that others use, reads
or writes, or waits for a disk; a process does so if any of its descendants does. Not everything that goes
wrong is silent: work that never gets anywhere, in a loop without end, cannot be told from work.

Linux only, like the runs themselves; a kernel without scheduler statistics (``schedstat``) leaves out the
waiting for a processor.
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
"""Has a worker write the Python stacks of all its threads to its log, whatever they wait for."""

LOOK_EVERY_S = 3.0
_BUSY = 0.15
"""Of one processor's time, used. An idle Spark and H2O take .02."""
_RUNNABLE, _RUNNING_THREADS = 0.7, 3
"""Of the time, used or waited for by the busiest threads. Who computes always does one of them; an idle
thread that looks at the clock waits some moments each time, on a crowded machine long ones."""
_BYTES_PER_S = 100_000
"""Read and written in all. An idle JVM that is asked how it is moves 30,000."""
_STORED_PER_S = 16_384
"""Read from and written to disks alone."""
_DISK_S = 600.0  # in which a thread may wait for a disk that answers nothing: it cannot be killed either
_STACKS_S = 1.5
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Vitals:
    """The signs of life of a process and its descendants.

    `idle_s` counts the seconds of silence. Time in which nobody looked (a laptop that slept, a run that was
    stopped as a whole) does not count, since it says nothing.
    """

    def __init__(self, pid: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.idle_s = 0.0
        self._pid = pid
        self._clock = clock
        self._looked = clock()
        self._disk_s = 0.0
        self._before = _measured(pid)

    def heard(self) -> None:
        """The process has reported something, or has a reason to wait."""
        self.idle_s = 0.0

    def look(self) -> float:
        """Take a look where one is due; returns `idle_s`."""
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
    """What a process tree had used by some moment: seconds of processors by thread, used and waited for, and
    bytes in all."""

    processes: set[int] = field(default_factory=set)
    used_s: dict[int, float] = field(default_factory=dict)
    waited_s: dict[int, float] = field(default_factory=dict)
    moved: int = 0
    stored: int = 0
    waits_for_disk: bool = False
    is_debugged: bool = False

    def used_until(self, later: _Measured) -> float:
        """Seconds of processors used since, by the threads that are there later."""
        return sum(_since(self.used_s, later.used_s).values())

    def runnable_until(self, later: _Measured) -> float:
        """Seconds of processors used or waited for since, by the busiest of those threads."""
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
    """Each thread of a process: its id, its state, the seconds for which it used a processor, and those for
    which it waited for one."""
    with contextlib.suppress(OSError):
        for task in (folder / "task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name, in brackets, may hold anything.
                words = (
                    (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                )
                used_s, waited_s = (int(words[11]) + int(words[12])) * _TICK_S, 0.0
                with contextlib.suppress(OSError):
                    waited_s = int((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
                yield int(task.name), words[0], used_s, waited_s


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants, as far as they are there."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


@contextlib.contextmanager
def looking_after_myself(patience_s: float, log: Path) -> Iterator[None]:
    """Within, end this process with status 5 when it is silent for `patience_s` seconds, its stacks in `log`.

    For the last steps of a run, when nobody else looks after it.
    """
    ended = threading.Event()
    vitals = Vitals(os.getpid())

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            if vitals.look() >= patience_s:
                with log.open("a", encoding="utf-8") as file:
                    faulthandler.dump_traceback(file, all_threads=True)
                os.write(2, f"sparkgpu: the run hung at its end; its stacks are in {log}.\n".encode())
                os._exit(5)

    thread = threading.Thread(target=look, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def answer_with_stacks() -> None:
    """Have this process write its stacks to standard error when it is sent `STACK_SIGNAL`."""
    faulthandler.register(STACK_SIGNAL, file=sys.__stderr__ or sys.stderr, all_threads=True)


def leave_stacks(pid: int) -> None:
    """Have a worker, and the JVMs below it, write the stacks of all their threads to where they print.

    The worker must have called `answer_with_stacks`: others die of the signal. Processes that were stopped go
    on, since they could not answer otherwise.
    """
    for process in family(pid):
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)
            if process.pid == pid:
                process.send_signal(STACK_SIGNAL)
            elif process.name() == "java":
                process.send_signal(signal.SIGQUIT)
    time.sleep(_STACKS_S)
