"""Standard output that never makes a run wait: a separate thread writes it in order.

The reader of a pipe may stop reading (a pager, a stopped terminal, a program that waits for something else),
and a write to a full pipe blocks until it is read. Then the text waits here, and the run continues.
"""

from __future__ import annotations

import io
import os
import queue
import select
import threading
from typing import IO, TextIO


class Spool(io.TextIOBase):
    """Replaces `stream`, which must have a file descriptor."""

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
        # A character that the terminal lacks must not end a run.
        self._texts.put(text.encode(self.encoding or "utf-8", "replace"))
        return len(text)

    def drain(self, within_s: float) -> bool:
        """Wait at most `within_s` seconds for all text to be written; whether it is. No text may follow.

        Raises the error of a failed write, such as a full disk.
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
                except BlockingIOError:  # another process made the pipe nonblocking
                    select.select([], [self._descriptor], [])
                except BrokenPipeError:  # as after `| head`
                    is_over = True
                except OSError as error:
                    is_over, self._error = True, error
                    error.filename = "standard output"


def say(text: str, stream: IO[str]) -> None:
    """Write a line to `stream`, unless nobody reads it."""
    try:
        ready = bool(select.select([], [stream], [], 1.0)[1])
    except (OSError, ValueError):  # not a real file: a notebook's or a test's stream
        ready = True
    if ready:
        stream.write(text)
        stream.flush()
