"""JSON lines: one object per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkgpu.prepare.file_columns import FileColumns
from sparkgpu.prepare.formats.opening import literal
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def open_json(session: SparkSession, source: Source, files: FileColumns | None) -> DataFrame:
    """The table; a damaged row is refused, never skipped."""
    return session.read.option("mode", "FAILFAST").json(literal(source.location))
