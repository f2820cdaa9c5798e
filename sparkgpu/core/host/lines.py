"""Files to which one process appends lines while others read them, also from another machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def end_cut_line(path: Path) -> None:
    """End the line in whose middle a process was killed, so that the next one begins a line of its own."""
    with suppress(OSError), path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


class LineReader:
    """Reads the lines since the last read; an incomplete last line is left for the next read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[bytes]:
        """The new lines, none if there is no file."""
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:  # a resumed run has begun a new file
                    self._offset = 0
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        return data[:end].split(b"\n")[:-1]
