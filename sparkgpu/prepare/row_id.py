"""Gives each row of the source an id: its position there, with files in the order of their names.

The id does not depend on Spark's partitions. A row without a known position stops the run; it is never left
out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FILE = "__sparkgpu_file"
_START = "__sparkgpu_start"
_SHIFT = "__sparkgpu_shift"


def with_row_id(table: DataFrame, source: Source) -> DataFrame:
    """Add the row id to a table just opened from `source`."""
    if source.format == "parquet" and Path(source.location).exists():
        return _numbered_by_footers(table, sorted(table.inputFiles(), key=unquote))
    return _numbered_by_blocks(table)


def _numbered_by_footers(table: DataFrame, files: list[str]) -> DataFrame:
    """Local Parquet: footers give each file's number of rows, Spark each row's position in its file."""
    place = _metadata(table, "row_index")
    if len(files) == 1:
        return table.select("*", place.alias(ROW_ID))
    position, shifts = 0, []
    for file in files:
        path = urlparse(file).path
        shifts.append((f"file:{path}", position))  # Spark's spelling in a row; in lists it writes file://
        position += pq.read_metadata(unquote(path)).num_rows
    numbered = table.select("*", _metadata(table, "file_path").alias(_FILE), place.alias(ROW_ID))
    return _shifted(numbered, f"{_FILE} string, {_SHIFT} long", shifts)


def _numbered_by_blocks(table: DataFrame) -> DataFrame:
    """Any other file: positions from Spark's numbers within a partition and a count of each block.

    Spark numbers rows within a partition in file order, and gives each row's file and block. One job counts
    the rows of each block, which gives the block's first position.
    """
    from pyspark.sql import functions as F

    numbered = table.select(
        "*",
        _metadata(table, "file_path").alias(_FILE),
        _metadata(table, "file_block_start").alias(_START),
        F.monotonically_increasing_id().alias(ROW_ID),
    )
    blocks = (
        numbered.groupBy(_FILE, _START)
        .agg(F.count(F.lit(1)).alias("rows"), F.min(ROW_ID).alias("first"))
        .collect()
    )
    if len(blocks) <= 1:
        return numbered.drop(_FILE, _START)
    position, shifts = 0, []
    ordered = sorted((tuple(block) for block in blocks), key=lambda block: (unquote(block[0]), block[1]))
    for file, start, rows, first in ordered:
        shifts.append((file, start, position - first))
        position += rows
    return _shifted(numbered, f"{_FILE} string, {_START} long, {_SHIFT} long", shifts)


def _shifted(numbered: DataFrame, names: str, shifts: Iterable[tuple[object, ...]]) -> DataFrame:
    """Move each row's id by the shift of its file (and block)."""
    from pyspark.sql import functions as F

    keys = [name for name in (_FILE, _START) if name in numbered.columns]
    known = F.broadcast(numbered.sparkSession.createDataFrame(shifts, names))
    shift = F.coalesce(_SHIFT, F.raise_error(F.lit("a file that was not listed")).cast("long"))
    return numbered.join(known, keys, "left").withColumn(ROW_ID, F.col(ROW_ID) + shift).drop(*keys, _SHIFT)


def _metadata(table: DataFrame, field: str) -> Column:
    """Spark's facts on a row's file, even if the user's table has a column ``_metadata``."""
    from pyspark.sql import Column

    return Column(table._jdf.metadataColumn("_metadata")).getField(field)
