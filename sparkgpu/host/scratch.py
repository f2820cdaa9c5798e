"""A private folder for the temporary files of a run; also removes such folders of dead runs.

A run that is killed leaves its folder (H2O alone unpacks 150 MB of native libraries into it). Each folder
holds a lock that the kernel releases with the run, so the next run can recognise a dead run's folder and
remove it.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
