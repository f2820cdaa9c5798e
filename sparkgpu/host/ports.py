"""Blocks of TCP ports for lanes, held so that no other run on this machine takes them.

Below the range that the kernel hands out to clients: a port chosen there can be taken by any outgoing
connection a moment later. A block is held by a lock on a file, which the kernel drops with the process,
and every port in it is tried before it is handed out.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from sparkgpu.errors import DeviceError

BLOCK = 8
"""Ports in a block; a lane uses five (see `sparkgpu.jvm.session`), the rest is room."""

_FIRST, _END = 21000, 31000


@contextmanager
def reserved_ports(count: int) -> Iterator[tuple[int, ...]]:
    """The first ports of `count` free blocks, held until the block ends."""
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
                f"found {len(found)}. End other runs, or ask for fewer lanes."
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
        # Not SO_REUSEADDR on a listening port: that would call a port free that another process listens on.
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
