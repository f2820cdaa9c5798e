"""Tells the parent that a cluster makes progress, which no process on the parent's machine shows.

Executors are not children of the driver, so the parent sees none of their work. A thread asks every few
seconds and writes an event if there was progress. If there was none, no event comes, and the parent notices.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from sparkgpu.rundir.events import EventWriter

ASK_EVERY_S = 5.0

MadeProgress = Callable[[], bool]
"""Tells whether work was done since the last question."""


class SignsOfLife:
    """Writes ``alive`` to all of `events` whenever one of its sources made progress."""

    def __init__(self, events: Collection[EventWriter]) -> None:
        self._events = events
        self._asked: list[MadeProgress] = []
        self._ended = threading.Event()

    @contextmanager
    def of(self, made_progress: MadeProgress) -> Iterator[None]:
        """Also ask `made_progress` within the block. It must not raise."""
        self._asked.append(made_progress)
        try:
            yield
        finally:
            self._asked.remove(made_progress)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Ask and report within the block, in a separate thread."""
        thread = threading.Thread(target=self._tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            # Not joined, since a source may never answer.
            self._ended.set()

    def _tell(self) -> None:
        while not self._ended.wait(ASK_EVERY_S):
            # Ask all of them, since each measures from one question to the next.
            answers = [made_progress() for made_progress in list(self._asked)]
            if any(answers):
                for writer in self._events:
                    writer.alive()
