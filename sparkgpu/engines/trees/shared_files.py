"""Files that several lanes of a machine use: the first one writes a file, and it goes with the last one.

A lane has a name of its own (a hard link) for each file, so that it can drop the file alone.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05
_ALIVE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class SharedFile:
    """The file `common` under a lane's own name; both are on one disk. `alive` is that of `share`."""

    common: Path
    own: Path
    alive: Callable[[], None]

    def drop(self) -> None:
        """Remove the lane's name, and the file if no other lane has one."""
        with _alone(self.common, self.alive):
            self.own.unlink()
            if self.common.stat().st_nlink == 1:
                self.common.unlink()


def share(common: Path, own: Path, write: Callable[[Path], object], alive: Callable[[], None]) -> SharedFile:
    """Give `common` the name `own`; if it is not there, `write` first writes it, while other lanes wait.

    A lane that waits calls `alive` from time to time: nothing else shows that it does not hang.
    """
    common.parent.mkdir(exist_ok=True)
    with _alone(common, alive):
        if not common.exists():
            part = common.with_suffix(".part")
            part.unlink(missing_ok=True)  # of a lane that was killed
            write(part)
            part.rename(common)
        os.link(common, own)
    return SharedFile(common=common, own=own, alive=alive)


@contextmanager
def _alone(file: Path, alive: Callable[[], None]) -> Iterator[None]:
    """Keep the other lanes out; the kernel frees the lock of a lane that ends."""
    told = time.monotonic()
    with file.with_suffix(".lock").open("wb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - told >= _ALIVE_S:
                    alive()
                    told = time.monotonic()
                time.sleep(_POLL_S)
        yield
