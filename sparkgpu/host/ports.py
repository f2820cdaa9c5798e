"""Blocks of TCP ports for lanes, reserved against other runs on this machine.

The ports are below the range that the kernel gives to clients, where any outgoing connection could take a
port a moment later. A lock on a file reserves a block; the kernel releases it with the process. Every port of
a block is tried before the block is given out.
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
