"""The JVM of one worker: a Spark session, into which H2O comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.h2o.startup import StartingJvm
from sparkgpu.plan.plan import LanePlan

if TYPE_CHECKING:
    from ai.h2o.sparkling.H2OContext import H2OContext
    from pyspark.sql import SparkSession


class LaneJava:
    """The JVM of a worker of `lane`; `starting` is that JVM, if it starts already.

    `scratch` must be private to the user (mode 0700): it holds the files of H2O and Spark, and the login.
    """

    def __init__(self, lane: LanePlan, scratch: Path, starting: StartingJvm | None) -> None:
        self._lane = lane
        self._scratch = scratch
        self._starting = starting

    @contextmanager
    def spark(self, *, catalog: bool, meanwhile: Callable[[], None]) -> Iterator[SparkSession]:
        """A session; `meanwhile` is called while it starts."""
        from sparkgpu.h2o.session import spark_session

        lane = self._lane
        with spark_session(
            name=f"sparkgpu lane {lane.index}",
            threads=lane.threads,
            heap_bytes=lane.heap_bytes,
            scratch=self._scratch,
            port_base=lane.port_base,
            catalog=catalog,
            meanwhile=meanwhile,
            starting=self._starting,
        ) as session:
            yield session

    def h2o_in(self, session: SparkSession) -> H2OContext:
        """Start H2O in the session and connect this process's client."""
        from sparkgpu.h2o.context import start_h2o

        return start_h2o(
            session,
            name=f"{self._scratch.parent.name}-{self._lane.index}",
            scratch=self._scratch,
            port_base=self._lane.port_base,
            threads=self._lane.threads,
        )
