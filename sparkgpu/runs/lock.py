"""One run at a time in a folder: the file ``running.json`` in it names the owner, who holds a lock on it.

The kernel frees the lock of a process that was killed. Limits: on a file system whose locks do not reach
other machines, a run elsewhere is known to be alive only by its ``telemetry.csv``, which grows every second.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import psutil

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.files import UNREADABLE, read_json
from sparkgpu.core.rundir.paths import RunPaths

_ALIVE_S = 15.0


@contextmanager
def hold(paths: RunPaths, started: float) -> Iterator[None]:
    """Make the folder, if it does not exist, and own it until the block ends.

    Raises `ConfigError` if it cannot be written, or names the owner if another run uses it.
    """
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
        lock = paths.running.open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--out {paths.root}: cannot be written ({error.strerror}). Choose another folder."
        ) from None
    with lock:
        _take(lock, paths)
        owner = {
            "process": os.getpid(),
            "user": psutil.Process().username(),  # a number where the user has no name
            "host": socket.gethostname(),
            "since": datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        }
        lock.truncate(0)
        lock.write(json.dumps(owner))
        lock.flush()
        try:
            yield
        finally:
            paths.running.unlink(missing_ok=True)


def owner_of(paths: RunPaths) -> str:
    """Whose run uses the folder, or used it when it was killed, in words; empty if none is known."""
    with suppress(*UNREADABLE):
        return "process {process} of {user} on {host}, since {since}".format(**read_json(paths.running))
    return ""


def _take(lock: TextIO, paths: RunPaths) -> None:
    """Lock the file, in which the last owner still stands."""
    owner = owner_of(paths)
    may_live = bool(owner) and f" on {socket.gethostname()}, " not in owner
    is_used = False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        is_used = True
    except OSError:  # a file system without locks
        may_live = bool(owner)
    if is_used or (may_live and _grows(paths.telemetry)):
        raise ConfigError(
            f"--out {paths.root}: another run uses this folder ({owner or 'it has just begun'}). Wait for "
            "its end, or choose another folder; `sparkgpu monitor` shows it."
        )


def _grows(file: Path) -> bool:
    return file.exists() and time.time() - file.stat().st_mtime < _ALIVE_S
