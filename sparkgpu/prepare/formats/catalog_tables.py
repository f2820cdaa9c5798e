"""Tables of the Spark catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkgpu.errors import DataError
from sparkgpu.table.source import Source
from sparkgpu.words import listed, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def open_catalog_table(session: SparkSession, source: Source) -> DataFrame:
    """The table of that name. Raises `DataError` if there is none."""
    from pyspark.errors import AnalysisException

    try:
        return session.table(source.location)
    except AnalysisException:  # also for a text that is not a valid name
        names = [table.name for table in session.catalog.listTables()]
        raise DataError(
            f"{source.name}: the catalog has no such table.{nearest(source.location, names)} It has "
            f"{listed(names) or 'no tables'} in the database {session.catalog.currentDatabase()}; "
            "name one as table:NAME or table:DATABASE.NAME."
        ) from None
