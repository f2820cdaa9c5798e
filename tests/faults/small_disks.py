"""Small disks for a run: they fill up, or can only be read from some time on. They need root, or sudo."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SUDO = () if os.getuid() == 0 else ("sudo", "-n")


def privileged(*command: str | Path) -> None:
    """Run a command as root, or skip the test where that cannot be had."""
    try:
        done = subprocess.run([*SUDO, *map(str, command)], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"needs root: {error}")
    if done.returncode:
        pytest.skip(f"needs root: {' '.join(map(str, command))}: {done.stderr.strip()}")


FILLER = "filler"


class SmallDisk:
    """A file system of its own at `place`, in memory."""

    only_reads = False

    def __init__(self, place: Path, size: str, *options: str) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        privileged("mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", place)

    def fill(self) -> None:
        """Leave no room."""
        fill(self.place)

    def only_read(self) -> None:
        """Let no file be opened for writing any more, as after a fault of the disk."""
        privileged("mount", "--bind", self.place, self.place)
        self.only_reads = True
        privileged("mount", "-o", "remount,bind,ro", self.place)

    def mend(self) -> None:
        """Give room again, and let it be written."""
        if self.only_reads:
            self._unmount()
            self.only_reads = False
        (self.place / FILLER).unlink(missing_ok=True)

    def remove(self) -> None:
        """Leave the folder as it was."""
        self.mend()
        self._unmount()

    def _unmount(self) -> None:
        subprocess.run([*SUDO, "umount", "-l", str(self.place)], capture_output=True, check=True)


def fill(folder: Path) -> None:
    """Write a file until its disk is full."""
    with (folder / FILLER).open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return
