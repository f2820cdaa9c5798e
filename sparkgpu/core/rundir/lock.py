"""One run at a time in a folder: ``running.json`` in it names the owner, who locks and touches the file.

The kernel frees the lock of a process that was killed. Where locks do not reach other machines, an owner
elsewhere lives while the file's time changes, which takes no clock that both share. An owner that was silent
for longer (suspended) and finds another in its place ends itself. Limit: such machines have different names.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import psutil

from sparkgpu.core.errors import ConfigError, TrialError
from sparkgpu.core.rundir.files import UNREADABLE, read_json
from sparkgpu.core.rundir.paths import RunPaths

BEAT_S = 1.0
SILENT_S = 15.0
"""An owner elsewhere that does not touch its file for as long has ended."""


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
        ended = threading.Event()
        beat = threading.Thread(
            target=_beat, args=(paths, text := json.dumps(owner), ended), name="heartbeat", daemon=True
        )
        try:
            lock.truncate(0)
            lock.write(text)
            lock.flush()
            beat.start()
            yield
        finally:
            ended.set()
            if beat.ident is not None:
                beat.join(BEAT_S)  # a dead disk must not delay the end
            with suppress(OSError):  # a disk that is read-only by now keeps it, without the lock
                paths.running.unlink()


def _beat(paths: RunPaths, owner: str, ended: threading.Event) -> None:
    """Touch the file of this `owner` until the end. Ends the process if another owner stands in it."""
    while not ended.wait(BEAT_S):
        with suppress(OSError):  # of a full disk or a removed folder, others tell
            if paths.running.read_text(encoding="utf-8", errors="replace") != owner:
                words = (
                    f"sparkgpu: --out {paths.root}: this run gave no sign of life for {SILENT_S:g} s, and "
                    f"now another one uses its folder ({owner_of(paths)}).\n"
                )
                os.write(2, words.encode())
                os._exit(TrialError.exit_code)  # touch nothing any more; the workers end with this process
            os.utime(paths.running)


def owner_of(paths: RunPaths) -> str:
    """Whose run uses the folder, or used it when it was killed, in words; empty if none is known."""
    with suppress(*UNREADABLE):
        return "process {process} of {user} on {host}, since {since}".format(**read_json(paths.running))
    return ""


def refuse_in_use(paths: RunPaths) -> None:
    """Raise `ConfigError`, which names the owner, if a living run uses the folder."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError), paths.running.open() as lock:
        _take(lock, paths, fcntl.LOCK_SH)


def was_killed(paths: RunPaths) -> bool:
    """Whether its owner ended without removing its file; known on its own machine alone."""
    if f" on {socket.gethostname()}, " not in owner_of(paths):
        return False
    try:
        refuse_in_use(paths)
    except ConfigError:
        return False
    return paths.running.exists()


def _take(lock: TextIO, paths: RunPaths, how: int = fcntl.LOCK_EX) -> None:
    """Lock the file, in which the last owner still stands."""
    owner = owner_of(paths)
    may_live = bool(owner) and f" on {socket.gethostname()}, " not in owner
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        is_used = not os.path.samestat(os.fstat(lock.fileno()), paths.running.stat())
    except (BlockingIOError, FileNotFoundError):  # or its owner has just ended
        is_used = True
    except OSError:  # a file system without locks
        is_used, may_live = False, bool(owner)
    if is_used or (may_live and _beats(paths.running)):
        raise ConfigError(
            f"--out {paths.root}: another run uses this folder ({owner or 'it has just begun'}). Wait for "
            "its end, or choose another folder; `sparkgpu monitor` shows it."
        )


def _beats(file: Path) -> bool:
    """Whether its owner touches the file, or removes it at its end."""

    def touched() -> int:
        try:
            with file.open("rb") as opened:  # so NFS asks its server
                return os.fstat(opened.fileno()).st_mtime_ns
        except FileNotFoundError:
            return -1

    before, deadline = touched(), time.monotonic() + SILENT_S
    while time.monotonic() < deadline:
        time.sleep(BEAT_S / 4)
        if touched() != before:
            return True
    return False
