"""What a run reserves on this machine: blocks of TCP ports, and a private folder for temporary files.

The kernel releases both with the process, so nothing stays reserved for a dead run. A run that is killed
leaves its folder (H2O alone unpacks 150 MB of native libraries into it), and the next run removes it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sparkgpu.core.errors import DeviceError

BLOCK = 8
"""Ports in a block; a lane uses five (see `sparkgpu.h2o.session`), and the last one reserves the block."""

_FIRST, _END = 21000, 31000  # below the ports that the kernel gives to outgoing connections


@contextmanager
def reserved_ports(count: int) -> Iterator[tuple[int, ...]]:
    """The first ports of `count` free blocks, reserved until the ``with`` block ends."""
    with ExitStack() as held:
        found: list[int] = []
        for base in range(_FIRST, _END, BLOCK):
            *ports, guard = range(base, base + BLOCK)
            with ExitStack() as block:
                if _binds(block.enter_context(socket.socket()), guard) and all(map(_is_free, ports)):
                    held.enter_context(block.pop_all())
                    found.append(base)
            if len(found) == count:
                break
        else:
            raise DeviceError(
                f"{count} lanes need {count} blocks of {BLOCK} free TCP ports between {_FIRST} and {_END}; "
                f"found {len(found)}. Stop other runs, or ask for fewer lanes."
            )
        yield tuple(found)


def _binds(probe: socket.socket, port: int) -> bool:
    # No SO_REUSEADDR: with it, a port that another process listens on would look free.
    with suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return _binds(probe, port)


_PREFIX = "sparkgpu-run-"
_LOCK = "lock"
_OTHER_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
_THERE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder of mode 0700, removed at the end; folders of dead runs are removed first."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        new = folder / f".{_LOCK}"
        with _locked(new, _NEW):  # no other process knows the file yet
            new.rename(folder / _LOCK)  # rename only now: a lock that nobody holds means a dead run
            with _without_blanks(folder) as name:
                yield name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _without_blanks(folder: Path) -> Iterator[Path]:
    """The folder by a name without blanks, at which Sparkling Water would split its arguments."""
    if not re.search(r"\s", str(folder)):
        yield folder
        return
    for base in _OTHER_FOLDERS:
        with suppress(OSError):
            beside = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            break
    else:
        raise DeviceError(
            f"{folder.parent}: H2O cannot use a temporary folder with a blank in its path, and none of "
            f"{', '.join(_OTHER_FOLDERS)} is writable. Set TMPDIR to another folder."
        )
    try:
        link = beside / folder.name
        link.symlink_to(folder)
        yield link
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def sweep() -> None:
    """Remove the folders of dead runs: only this user's own, which nobody else can write to."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            if (found.st_uid, found.st_mode) == (os.getuid(), stat.S_IFDIR | 0o700):
                with _locked(folder / _LOCK, _THERE):
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(file: Path, flags: int) -> Iterator[None]:
    """Hold a lock on the file. Raises `OSError` if another process does; waits for nothing."""
    descriptor = os.open(file, flags, mode=0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
