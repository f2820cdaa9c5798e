"""Files that several lanes of a machine use: the first one writes a file, and it goes with the last one.

A lane has a name of its own (a hard link) for each file, so that it can drop the file alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SharedFile:
    """The file `common` under a lane's own name; both are on one disk."""

    common: Path
    own: Path

    def drop(self) -> None:
        """Remove the lane's name, and the file if no other lane has one."""
        with _alone(self.common):
            self.own.unlink()
            if self.common.stat().st_nlink == 1:
                self.common.unlink()


def share(common: Path, own: Path, write: Callable[[Path], object]) -> SharedFile:
    """Give `common` the name `own`; if it is not there, `write` first writes it, while other lanes wait."""
    common.parent.mkdir(exist_ok=True)
    with _alone(common):
        if not common.exists():
            part = common.with_suffix(".part")
            part.unlink(missing_ok=True)  # of a lane that was killed
            write(part)
            part.rename(common)
        os.link(common, own)
    return SharedFile(common=common, own=own)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keep the other lanes out; the kernel frees the lock of a lane that ends."""
    with file.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
