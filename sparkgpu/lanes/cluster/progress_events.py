"""Tells the parent that a cluster makes progress, which no process on the parent's machine shows.

Executors are not children of the driver. A thread asks every few seconds and writes an event if there was
progress. If there was none, no event comes, and the parent notices.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.prepare.pyspark_internals import scala_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK_EVERY_S = 5.0


@contextmanager
def signs_of_life(events: Collection[EventWriter], work: ExecutorWork) -> Iterator[None]:
    """Within the block, write ``alive`` to all `events` whenever there was progress."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(ASK_EVERY_S):
            if work.made_progress():
                for writer in events:
                    writer.alive()

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        ended.set()  # the thread is not joined, since Spark may never answer


class ExecutorWork:
    """Tells whether executors made progress since the last question: tasks ended, rows were read.

    Executors report the rows of a running task every 10 seconds. The work of their Python workers between two
    rows is invisible.
    """

    def __init__(self, session: SparkSession) -> None:
        self._store = scala_context(session).statusStore()
        self._seen: list[int] = []

    def made_progress(self) -> bool:
        from py4j.protocol import Py4JError, Py4JNetworkError

        before = self._seen
        try:
            self._seen = self._counted()
        except (Py4JError, Py4JNetworkError, OSError):
            return False  # Spark is stopping, or its JVM is gone; others notice that
        return self._seen != before

    def _counted(self) -> list[int]:
        counts: list[int] = []
        executors, stages = self._store.executorList(True), self._store.activeStages()
        for executor in map(executors.apply, range(executors.size())):
            counts += [executor.completedTasks(), executor.failedTasks(), executor.totalInputBytes()]
        for stage in map(stages.apply, range(stages.size())):
            counts += [stage.stageId(), stage.inputRecords(), stage.shuffleReadRecords()]
            counts += [stage.shuffleWriteRecords(), stage.outputRecords()]
        return counts
