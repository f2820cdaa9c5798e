"""Tells the parent of a run on a cluster that the cluster gets on, which no process of its own machine shows.

Executors are no children of the driver, so the parent sees none of their work. A thread asks every few
seconds and writes an event when something was done since; when nothing is, the parent finds out by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from sparkgpu.rundir.events import EventWriter

ASK_EVERY_S = 5.0

GetsOn = Callable[[], bool]
"""Says whether work was done since it was asked before."""


class SignsOfLife:
    """Writes ``alive`` to all of `events` whenever one of those asked has got on."""

    def __init__(self, events: Collection[EventWriter]) -> None:
        self._events = events
        self._asked: list[GetsOn] = []
        self._ended = threading.Event()

    @contextmanager
    def of(self, gets_on: GetsOn) -> Iterator[None]:
        """Ask `gets_on`, too, within the block. It must raise nothing."""
        self._asked.append(gets_on)
        try:
            yield
        finally:
            self._asked.remove(gets_on)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Ask and tell within the block, in a thread of its own."""
        thread = threading.Thread(target=self._tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            # Not joined: whoever is asked may never answer.
            self._ended.set()

    def _tell(self) -> None:
        while not self._ended.wait(ASK_EVERY_S):
            # All are asked, since each measures from one question to the next.
            answers = [gets_on() for gets_on in list(self._asked)]
            if any(answers):
                for writer in self._events:
                    writer.alive()
