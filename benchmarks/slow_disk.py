"""Mounts a folder again with slower file operations: ``python slow_disk.py FOLDER MOUNT DELAY_MS``.

Each operation first waits a random time from 0 to twice DELAY_MS milliseconds. The program ends when MOUNT is
unmounted, or with the process that started it. It needs root, /dev/fuse, libfuse 2 or 3 and the package
mfusepy. `benchmarks/soak.py` uses it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mfusepy

from sparkgpu.core.host.processes import die_with_parent

_ATTRIBUTES = (
    "st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_ino", "st_blocks", "st_blksize",
    "st_atime_ns", "st_mtime_ns", "st_ctime_ns",
)  # fmt: skip
_SPACE = (
    "f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize",
    "f_namemax",
)  # fmt: skip


class SlowDisk(mfusepy.Operations):  # type: ignore[misc]
    """Passes every operation on to the folder after a wait; libfuse calls them from several threads."""

    use_ns = True

    def __init__(self, folder: Path, delay_s: float) -> None:
        self._folder = folder
        self._delay_s = delay_s

    def _at(self, path: str) -> str:
        time.sleep(random.uniform(0, 2 * self._delay_s))
        return f"{self._folder}{path}"

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.fstat(fh) if fh is not None else os.lstat(self._at(path))
        return {name.removesuffix("_ns"): getattr(found, name) for name in _ATTRIBUTES}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._at(path))]  # noqa: PTH208

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in _SPACE}

    def open(self, path: str, flags: int) -> int:
        return os.open(self._at(path), flags & ~os.O_APPEND)  # the kernel gives the position of each write

    def create(self, path: str, mode: int) -> int:
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        self._at(path)
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._at(path)
        return os.pwrite(fh, data, offset)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._at(path)
        os.fsync(fh)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._at(path), length)
        return 0

    def rename(self, old: str, new: str) -> int:
        return _done(os.replace, self._at(old), f"{self._folder}{new}")

    def symlink(self, target: str, source: str) -> int:
        return _done(os.symlink, source, self._at(target))

    def link(self, target: str, source: str) -> int:
        return _done(os.link, f"{self._folder}{source}", self._at(target))

    def readlink(self, path: str) -> str:
        return os.readlink(self._at(path))  # noqa: PTH115

    def mkdir(self, path: str, mode: int) -> int:
        return _done(os.mkdir, self._at(path), mode)

    def rmdir(self, path: str) -> int:
        return _done(os.rmdir, self._at(path))

    def unlink(self, path: str) -> int:
        return _done(os.unlink, self._at(path))

    def chmod(self, path: str, mode: int) -> int:
        return _done(os.chmod, self._at(path), mode)

    def chown(self, path: str, uid: int, gid: int) -> int:
        return _done(os.lchown, self._at(path), uid, gid)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._at(path), ns=times or (time.time_ns(),) * 2)
        return 0


def _done(operation: Callable[..., None], *words: Any) -> int:
    operation(*words)
    return 0


if __name__ == "__main__":
    die_with_parent()
    mfusepy.FUSE(
        SlowDisk(Path(sys.argv[1]).resolve(), float(sys.argv[3]) / 1000), sys.argv[2], foreground=True
    )
