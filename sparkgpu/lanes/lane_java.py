"""What starts in the JVM of one worker: H2O alone, or Spark, into whose session H2O may come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.jvm.startup import JvmSettings, StartingJvm
from sparkgpu.lanes.process import import_for_h2o
from sparkgpu.plan.plan import LanePlan

if TYPE_CHECKING:
    from ai.h2o.sparkling.H2OContext import H2OContext
    from py4j.java_gateway import JVMView
    from pyspark.sql import SparkSession


class LaneJava:
    """The JVM of a worker of `lane`; `starting` is that JVM, if it starts already.

    `scratch` must be private to the user (mode 0700): it holds the files of H2O and Spark, and the login.
    """

    def __init__(self, lane: LanePlan, scratch: Path, starting: StartingJvm | None) -> None:
        self._lane = lane
        self._scratch = scratch
        self._starting = starting
        self._cloud_name = f"{scratch.parent.name}-{lane.index}"

    def end_unused(self) -> None:
        """End the JVM that starts already: nobody needs it."""
        if self._starting is not None:
            self._starting.kill()

    @contextmanager
    def h2o(self) -> Iterator[JVMView]:
        """H2O without Spark; while it starts, this process imports what its trees need."""
        from sparkgpu.jvm.h2o_node import h2o_alone

        lane = self._lane
        settings = JvmSettings(heap_bytes=lane.heap_bytes, threads=lane.threads, scratch=self._scratch)
        with h2o_alone(
            settings,
            name=self._cloud_name,
            port_base=lane.port_base,
            starting=self._starting,
            meanwhile=import_for_h2o,
        ) as java:
            yield java

    @contextmanager
    def spark(self, *, catalog: bool, meanwhile: Callable[[], None]) -> Iterator[SparkSession]:
        """A session; `meanwhile` is called while it starts."""
        from sparkgpu.jvm.session import spark_session

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
        from sparkgpu.jvm.h2o_context import start_h2o

        return start_h2o(
            session,
            name=self._cloud_name,
            scratch=self._scratch,
            port_base=self._lane.port_base,
            threads=self._lane.threads,
        )
