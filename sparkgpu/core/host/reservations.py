"""What a run reserves on this machine: blocks of TCP ports, and a private folder for temporary files.

A lock on a file holds each of them; the kernel releases it with the process, so nothing stays reserved for
a dead run. A run that is killed leaves its folder (H2O alone unpacks 150 MB of native libraries into it),
and the next run, which finds its lock free, removes it.

The ports are below the range that the kernel gives to clients, where any outgoing connection could take a
port a moment later. Every port of a block is tried before the block is given out.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from sparkgpu.core.errors import DeviceError

BLOCK = 8
"""Ports in a block; a lane uses five (see `sparkgpu.h2o.session`), the rest is spare."""

_FIRST, _END = 21000, 31000


@contextmanager
def reserved_ports(count: int) -> Iterator[tuple[int, ...]]:
    """The first ports of `count` free blocks, reserved until the ``with`` block ends."""
    folder = Path(tempfile.gettempdir()) / f"sparkgpu-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as held:
        found: list[int] = []
        for base in range(_FIRST, _END, BLOCK):
            lock = _lock(folder / str(base))
            if lock is None:
                continue
            held.enter_context(lock)
            if all(_is_free(port) for port in range(base, base + BLOCK)):
                found.append(base)
            if len(found) == count:
                break
        else:
            raise DeviceError(
                f"{count} lanes need {count} blocks of {BLOCK} free TCP ports between {_FIRST} and {_END}; "
                f"found {len(found)}. Stop other runs, or ask for fewer lanes."
            )
        yield tuple(found)


def _lock(path: Path) -> IO[str] | None:
    file = path.open("w", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # No SO_REUSEADDR: with it, a port that another process listens on would look free.
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_PREFIX = "sparkgpu-run-"
_LOCK = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder of mode 0700, removed at the end; folders of dead runs are removed first."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        new = folder / f".{_LOCK}"
        with new.open("w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no other process knows the file yet
            new.rename(folder / _LOCK)  # rename only now: a lock that nobody holds means a dead run
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove the folders of dead runs."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), (folder / _LOCK).open("r", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
