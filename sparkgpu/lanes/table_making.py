"""How a worker makes the table: before Spark is up if it can, else in its session, from a source read beside.

A refused table ends the process; its reason goes to the lane's ``error.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.config.keys import RunConfig
from sparkgpu.host.collector import importing
from sparkgpu.lanes.background import InBackground
from sparkgpu.lanes.process import give_up
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.demo_table import at_hand
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkgpu.prepare.parquet_statistics import ParquetScan

_READING = "reading the source"


class TableMaking:
    """The table of one run; `error` is the file for the reason of a refusal."""

    def __init__(
        self,
        *,
        config: RunConfig,
        source: Source,
        scratch: Path,
        paths: RunPaths,
        events: EventWriter,
        error: Path,
    ) -> None:
        self._config = config
        self._source = source
        self._scratch = scratch
        self._paths = paths
        self._events = events
        self._error = error
        self.is_there = False
        """Whether the table was made before Spark, and needs none."""
        self._here: Source | None = None
        self._found: InBackground[Source] | None = None
        self._scan: InBackground[ParquetScan | None] | None = None

    def begin(self) -> None:
        """Make the table without Spark, if that is possible."""
        from sparkgpu.jvm.preload import preload_for_rows
        from sparkgpu.prepare.early import prepare_early
        from sparkgpu.prepare.formats.typed_copy import is_small, typed_copy

        with importing():
            preload_for_rows()
        if is_small(self._source):
            with self._events.phase(_READING):
                self._here = typed_copy(self._source, self._scratch)
        source = self._here or self._source
        made = prepare_early(config=self._config, source=source, paths=self._paths, events=self._events)
        self.is_there = made is not None
        if self.is_there:
            self._remove_copy(source)

    @property
    def is_local(self) -> bool:
        """Whether pyarrow alone makes it, so that Spark has no Python workers and no catalog to close."""
        from sparkgpu.prepare.local_table import may_be_local

        return self._found is not None and may_be_local(self._config, self._found.result())

    def read_beside(self) -> None:
        """Make the source readable and, if pyarrow can, read it, in the background, while Spark starts."""
        from sparkgpu.prepare.formats.typed_copy import typed_copy
        from sparkgpu.prepare.parquet_statistics import scan_parquet

        found = self._found = InBackground(
            lambda: self._here or typed_copy(at_hand(self._source, self._scratch), self._scratch)
        )
        self._scan = InBackground(lambda: scan_parquet(found.result(), self._config.data.target))

    def finish(self, session: SparkSession) -> None:
        """Make the table in the session."""
        from sparkgpu.prepare.local_table import may_be_local
        from sparkgpu.prepare.prepare import prepare
        from sparkgpu.prepare.table_writer import warm_up

        assert self._found is not None and self._scan is not None
        try:
            with self._events.phase(_READING):
                found = self._found.result()
            if not may_be_local(self._config, found):
                InBackground(lambda: warm_up(session))  # Spark's Python worker, which will write the table
            prepare(
                session,
                config=self._config,
                source=found,
                scratch=self._scratch,
                paths=self._paths,
                events=self._events,
                scan=self._scan.result,
            )
            self._remove_copy(found)
        except Exception as error:
            # The run is over: report the reason at once, without waiting for H2O's start and Spark's end.
            give_up(error, [self._error])

    def _remove_copy(self, source: Source) -> None:
        """Free the disk of a typed copy, which nobody reads again."""
        if source.was_text:
            Path(source.location).unlink(missing_ok=True)
