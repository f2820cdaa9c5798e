"""Runs of several users on one machine, for `benchmarks/soak.py`: nobody may leave or touch anything.

The users need no account, only numbers that nothing else here uses, so that all they leave is found. A dead
run of a further user is planted, which their runs must not clean up.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_FOLDERS = {Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path(tempfile.gettempdir())}
_OPEN = stat.S_IWGRP | stat.S_IWOTH


class Users:
    """The users, by number, who start two runs each in turn; without any, all runs are one's own."""

    def __init__(self, numbers: list[int], folder: Path) -> None:
        self._numbers = numbers
        self._folder = folder
        if numbers:
            folder.parent.chmod(0o755)
        for number in numbers:
            self._home(number).mkdir(mode=0o755)
            os.chown(self._home(number), number, number)

    def folder(self, run: int) -> str:
        """Where the run with this number writes, below the folder of the tables."""
        return f"home-{self._of(run)}" if self._numbers else "."

    def prefix(self, run: int) -> list[str]:
        """What stands before the command of the run with this number."""
        if not self._numbers:
            return []
        number = self._of(run)
        ids = ["--reuid", str(number), "--regid", str(number), "--clear-groups"]
        return ["setpriv", *ids, "env", f"HOME={self._home(number)}"]

    def writable(self, out: Path) -> list[str]:
        """The files of a run to which other users can write."""
        files = [path for path in (out, *out.rglob("*")) if not path.is_symlink()] if self._numbers else []
        return [f"{path} is writable for others" for path in files if path.stat().st_mode & _OPEN]

    @contextmanager
    def checked(self, found: list[str]) -> Iterator[None]:
        """Add to `found` what the runs of the block left on the machine, or touched of another user's."""
        if not self._numbers:
            yield
            return
        other = max(self._numbers) + 1
        dead = Path(tempfile.mkdtemp(prefix="sparkgpu-run-"))
        (dead / "lock").touch(mode=0o600)
        places = [dead / "lock", dead, *self._folder.glob("*.parquet")]
        for place in places[:2]:
            os.chown(place, other, other)
        before, left = [_state(place) for place in places], set(self._left())
        try:
            yield
            found += [
                f"{place} was touched"
                for place, state in zip(places, before, strict=True)
                if _state(place) != state
            ]
            found += [path for path in self._left() if path not in left]
        finally:
            shutil.rmtree(dead, ignore_errors=True)

    def _left(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.uids().real in self._numbers:
                    found.append(f"process {process.pid} {' '.join(process.cmdline())[:120]}")
        for folder in _FOLDERS:
            for path in folder.iterdir():
                with suppress(FileNotFoundError):
                    if path.lstat().st_uid in self._numbers:
                        found.append(str(path))
        return found

    def _of(self, run: int) -> int:
        return self._numbers[run // 2 % len(self._numbers)]  # each has both of two tables

    def _home(self, number: int) -> Path:
        return self._folder / f"home-{number}"


def _state(path: Path) -> tuple[int, ...] | None:
    with suppress(FileNotFoundError):
        found = path.lstat()
        return found.st_ino, found.st_uid, found.st_gid, found.st_mode, found.st_mtime_ns
    return None
