"""Standard output that never keeps a run waiting: a thread of its own writes it, in the order it came.

Whoever reads a pipe may stop to do so (a pager, a stopped terminal, a program that waits for something
else), and a write into a full pipe ends only when it is read. Then the text waits here, and the run goes on.
"""

from __future__ import annotations

import io
import os
import queue
import select
import threading
from typing import IO, TextIO


class Spool(io.TextIOBase):
    """Takes the place of `stream`, which must have a file descriptor."""

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._stream = stream
        self._descriptor = stream.fileno()
        self._error: OSError | None = None
        self._texts: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        # A letter that the terminal lacks must not end a run.
        self._texts.put(text.encode(self.encoding or "utf-8", "replace"))
        return len(text)

    def drain(self, within_s: float) -> bool:
        """Wait until all is written, or for `within_s` seconds; whether it is. Nothing may follow.

        Raises what writing to a file ended with, such as a full disk.
        """
        self._texts.put(None)
        self._thread.join(within_s)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_over = False
        while (text := self._texts.get()) is not None:
            while text and not is_over:
                try:
                    text = text[os.write(self._descriptor, text) :]
                except BlockingIOError:  # somebody made the pipe one that does not wait
                    select.select([], [self._descriptor], [])
                except BrokenPipeError:  # as after `| head`
                    is_over = True
                except OSError as error:
                    is_over, self._error = True, error


def say(text: str, stream: IO[str]) -> None:
    """Write a line to standard error, unless nobody reads it."""
    try:
        ready = bool(select.select([], [stream], [], 1.0)[1])
    except (OSError, ValueError):  # no file of its own: a notebook's, or a test's
        ready = True
    if ready:
        stream.write(text)
        stream.flush()
