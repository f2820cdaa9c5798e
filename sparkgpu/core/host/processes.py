"""Makes processes end with the run, and ends them on request."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_GRACE_S = 0.2
_KILLED_S = 10.0


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when the thread that started it ends (Linux).

    `parent` is the expected parent process: if it has already ended, this process ends at once. Checking
    after the request closes the gap between this process's start and its request.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def end_groups(processes: Iterable[subprocess.Popen[bytes]], grace_s: float = _GRACE_S) -> None:
    """End each process and its whole group: ask first, kill after `grace_s` seconds.

    Each process must lead its group. A group whose leader has ended is ended as well, since its members may
    live.
    """
    waiting = list(processes)
    for process in waiting:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(process.poll() is None for process in waiting) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in waiting:
        _signal_group(process, signal.SIGKILL)
        reap(process)


def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a killed process, but not forever: one that waits for a dead disk does not die."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_KILLED_S)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants, as far as they still exist."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def peak_resident_bytes() -> int:
    """The peak resident memory of this process and its children, summed.

    Each peak comes from the kernel (VmHWM), so no short peak is missed. Ended children do not count, and a
    page that two processes share counts twice.
    """
    peak = 0
    for process in family(os.getpid()):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process.pid}/status").read_bytes().splitlines():
                if line.startswith(b"VmHWM:"):
                    peak += int(line.split()[1]) * 1024
    return peak
