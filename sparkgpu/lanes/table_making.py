"""How a worker makes the table of a run: by Spark's pipeline in its session, or by Arrow without a JVM.

A refused table ends the process; its reason goes to the lane's ``error.json``.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.demo_table import resolve_demo
from sparkgpu.core.table.source import Source
from sparkgpu.lanes.process import give_up, import_for_threads, in_background

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkgpu.prepare.local_rows import LocalRows
    from sparkgpu.prepare.table_rows import RowWriter


@dataclass(kw_only=True)
class TableMaking:
    """The table of one run; `error` is the file for the reason of a refusal."""

    config: RunConfig
    source: Source
    scratch: Path
    paths: RunPaths
    events: EventWriter
    error: Path
    _found: Future[tuple[LocalRows, RowWriter]] | None = None
    _saving: Future[None] | None = None

    def by_arrow(self) -> None:
        """Make the table without a JVM."""
        from sparkgpu.prepare.prepare import write_by_arrow

        import_for_threads(spark=False)
        self.source = resolve_demo(self.source, self.scratch)
        rows, writer = self._find_out()
        write_by_arrow(rows, writer, paths=self.paths, events=self.events)

    def find_out_beside(self) -> None:
        """Find out about a table of this machine in the background, while Spark starts."""
        self.source = resolve_demo(self.source, self.scratch)
        if not self.source.is_opened_by_spark:
            self._found = in_background(self._find_out)

    def by_spark(self, session: SparkSession) -> None:
        """Make the table in the session."""
        from sparkgpu.prepare.prepare import prepare_in_session, write_by_spark
        from sparkgpu.prepare.spark_rows import open_local
        from sparkgpu.prepare.unreadable import refusing_unreadable

        paths, events = self.paths, self.events
        try:
            if self._found is None:
                prepare_in_session(
                    session, self.source, config=self.config, scratch=self.scratch, paths=paths, events=events
                )
            else:
                rows, writer = self._found.result()
                with refusing_unreadable(self.source):
                    table = open_local(session, rows)
                    _, save = write_by_spark(session, table, writer, paths=paths, events=events)
                self._saving = in_background(save)
        except Exception as error:
            # The run is over: report the reason at once, without waiting for H2O's start and Spark's end.
            give_up(error, [self.error])

    def finish(self) -> None:
        """Wait until the pipeline is saved."""
        if self._saving is not None:
            self._saving.result()

    def _find_out(self) -> tuple[LocalRows, RowWriter]:
        from sparkgpu.prepare.local_rows import LocalRows
        from sparkgpu.prepare.prepare import find_out
        from sparkgpu.prepare.to_parquet import to_parquet

        with self.events.phase("reading the source"):
            files = to_parquet(self.source, self.scratch, ignore=self.config.data.ignore)
            rows = LocalRows(files, self.source)
        return rows, find_out(
            rows, source=self.source, config=self.config, paths=self.paths, events=self.events
        )
