"""How much work the executors of an application have done, as far as its driver knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkgpu.prepare.pyspark_internals import scala_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ExecutorWork:
    """Tells whether executors made progress since the last question: tasks ended, rows were read.

    Executors report the rows of a running task every 10 seconds. The work of their Python workers between two
    rows is invisible.
    """

    def __init__(self, session: SparkSession) -> None:
        self._store = scala_context(session).statusStore()
        self._seen: tuple[int, ...] = ()

    def made_progress(self) -> bool:
        from py4j.protocol import Py4JError, Py4JNetworkError

        try:
            now = self._counted()
        except (Py4JError, Py4JNetworkError, OSError):
            return False  # Spark is stopping, or its JVM is gone; others notice that
        moved = now != self._seen
        self._seen = now
        return moved

    def _counted(self) -> tuple[int, ...]:
        counts: list[int] = []
        executors = self._store.executorList(True)
        for position in range(executors.size()):
            executor = executors.apply(position)
            counts += [executor.completedTasks(), executor.failedTasks(), executor.totalInputBytes()]
        stages = self._store.activeStages()
        for position in range(stages.size()):
            stage = stages.apply(position)
            counts += [stage.stageId(), stage.inputRecords(), stage.shuffleReadRecords()]
            counts += [stage.shuffleWriteRecords(), stage.outputRecords()]
        return tuple(counts)
