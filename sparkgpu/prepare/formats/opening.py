"""The interface that opens a source of one format, and what all formats share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sparkgpu.prepare.file_columns import FileColumns
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Opener(Protocol):
    """Opens a source of one format; its entry is in `sparkgpu.config.registry.formats`."""

    def __call__(self, session: SparkSession, source: Source, files: FileColumns | None) -> DataFrame:
        """The table with its own columns; `files` holds the columns of local files of a typed format.

        Raises `DataError`, or Spark's error, if it cannot be read.
        """


def literal(location: str) -> str:
    """A path without wildcards: Spark would read the brackets in ``sales[1].csv`` as a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", location) if Path(location).exists() else location
