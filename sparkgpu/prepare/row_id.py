"""Gives each row of the source an id: its position there, with files in the order of their names.

The id does not depend on Spark's partitions. A row without a known position stops the run; it is never left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.pyspark_internals import metadata_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE = "__sparkgpu_file"
_START = "__sparkgpu_start"
_SHIFT = "__sparkgpu_shift"
_HEADER = "__sparkgpu_header"


class RowBlock(NamedTuple):
    """A part of a file: where it starts, its rows, Spark's number of the first, and that line."""

    file: str
    start: int
    rows: int
    first: int
    line: bytes


def numbered_by_footers(table: DataFrame, files: Sequence[Path] = ()) -> DataFrame:
    """Local Parquet: footers give each file's number of rows, Spark each row's position in its file.

    `files` is their order (default: that of their names).
    """
    place = metadata_of(table, "row_index")
    spelled = {Path(unquote(path)): path for path in (urlparse(name).path for name in table.inputFiles())}
    if len(spelled) == 1:
        return table.select("*", place.alias(ROW_ID))
    position, shifts = 0, []
    for file in files or sorted(spelled):
        # Spark's spelling in a row; in lists it writes file://
        shifts.append((f"file:{spelled[file]}", position))
        position += pq.read_metadata(file).num_rows
    numbered = table.select("*", metadata_of(table, "file_path").alias(_FILE), place.alias(ROW_ID))
    return _joined(numbered, f"{_FILE} string, {_SHIFT} long", shifts)


def numbered_by_blocks(table: DataFrame) -> DataFrame:
    """Any other file: one job counts the rows of each block, which gives the block's first position."""
    found = placed(table)
    return shifted(found, blocks_of(found))


def placed(table: DataFrame) -> DataFrame:
    """Rows with their file, their block and Spark's numbers, which count within a partition in file order."""
    from pyspark.sql import functions as F

    return table.select(
        "*",
        metadata_of(table, "file_path").alias(_FILE),
        metadata_of(table, "file_block_start").alias(_START),
        F.monotonically_increasing_id().alias(ROW_ID),
    )


def blocks_of(table: DataFrame, *, first_of: str | None = None) -> list[RowBlock]:
    """The blocks of a table that is `placed`, in order, with the first value of the column `first_of`."""
    from pyspark.sql import functions as F

    line = F.min_by(first_of, ROW_ID) if first_of is not None else F.lit(b"")
    found = table.groupBy(_FILE, _START).agg(F.count(F.lit(1)), F.min(ROW_ID), line).collect()
    return sorted(
        (RowBlock(*row) for row in found), key=lambda block: (Path(unquote(block.file)), block.start)
    )


def shifted(table: DataFrame, blocks: Sequence[RowBlock], *, with_header: bool = False) -> DataFrame:
    """The user's columns and the row id, without the first row of each file if that is its header."""
    position, shifts, files = 0, [], set()
    for file, start, rows, first, _ in blocks:
        header = int(with_header and file not in files)
        files.add(file)
        shifts.append((file, start, position - first - header, first if header else None))
        position += rows - header
    return _joined(table, f"{_FILE} string, {_START} long, {_SHIFT} long, {_HEADER} long", shifts)


def _joined(table: DataFrame, names: str, shifts: Iterable[tuple[object, ...]]) -> DataFrame:
    """Move each row's id by the shift of its file (and block)."""
    from pyspark.sql import functions as F

    known = F.broadcast(table.sparkSession.createDataFrame(list(shifts), names))
    keys = [name for name in (_FILE, _START) if name in known.columns]
    shift = F.coalesce(_SHIFT, F.raise_error(F.lit("a file that was not listed")).cast("long"))
    joined = table.join(known, keys, "left")
    if _HEADER in known.columns:
        joined = joined.where(f"{_HEADER} IS NULL OR {_HEADER} <> {ROW_ID}")
    return joined.withColumn(ROW_ID, F.col(ROW_ID) + shift).drop(*keys, _SHIFT, _HEADER)
