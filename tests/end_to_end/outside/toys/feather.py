"""A format: Feather files, which pyarrow reads and Spark does not."""

from __future__ import annotations

import pyarrow.feather
from pyspark.sql import DataFrame, SparkSession

from sparkgpu.core.table.source import Source


def open_feather(session: SparkSession, source: Source) -> DataFrame:
    """The table through pandas, for tables that fit the driver."""
    return session.createDataFrame(pyarrow.feather.read_table(source.location).to_pandas())
