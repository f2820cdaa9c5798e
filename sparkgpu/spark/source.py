"""Opens the user's table, whatever it is stored as, and gives each row an id that is its place in the source.

Reads Parquet (file or folder), CSV (plain or compressed), ORC, JSON lines and catalog tables. What cannot
be read is refused with one sentence; a damaged row is never skipped.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from sparkgpu.errors import DataError, listed
from sparkgpu.source import COMPRESSED, Source
from sparkgpu.spark.columns import ROW_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def open_source(session: SparkSession, source: Source) -> DataFrame:
    """The table as a DataFrame with its own columns. Raises `DataError` when it cannot be read."""
    with refusing_unreadable(source):
        if source.format is None:
            return session.table(source.location)
        reader = session.read
        if source.format == "csv":
            delimiter = _check_header(source)
            return (
                reader.option("header", True)
                .option("inferSchema", True)
                .option("mode", "FAILFAST")
                .option("sep", delimiter)
                .option("escape", '"')  # a quote inside quotes is doubled, as RFC 4180 has it
                .csv(source.location)
            )
        if source.format == "json":
            return reader.option("mode", "FAILFAST").json(source.location)
        return reader.format(source.format).load(source.location)


def _check_header(source: Source) -> str:
    """Refuse duplicate column names, which Spark would rename silently; returns the delimiter."""
    path = Path(source.location)
    if path.is_dir():
        path = min(
            item for item in path.rglob("*") if item.is_file() and not item.name.startswith(("_", "."))
        )
    openers: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".bz2": bz2.open}
    opener = openers.get(path.suffix.lower(), open)
    if not path.exists() or path.suffix.lower() in set(COMPRESSED) - set(openers):
        return ","
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            line = file.readline()
    except UnicodeDecodeError:
        raise DataError(f"{source.name}: not text in UTF-8. Save the CSV file as UTF-8.") from None
    except (OSError, EOFError) as error:
        raise DataError(f"{source.name}: cannot be read ({error}).") from None
    delimiter = max(",;\t|", key=line.count) if any(mark in line for mark in ",;\t|") else ","
    names = next(csv.reader([line], delimiter=delimiter), [])
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{source.name}: duplicate column names: {listed(twice)}. Give each column one name.")
    return delimiter


_MEANINGS = (
    (r"already exists|Found duplicate column|AMBIGUOUS_REFERENCE", "duplicate column names"),
    (r"Malformed|FAILED_READ_FILE.*CSV|BadRecord", "rows that do not fit the header"),
    (r"not a Parquet file|Could not read footer|expected magic number|corrupt", "not a whole Parquet file"),
    (r"UNABLE_TO_INFER_SCHEMA", "no data files in it"),
    (r"TABLE_OR_VIEW_NOT_FOUND", "the catalog has no such table"),
    (r"_corrupt_record", "lines that are not JSON objects"),
)


@contextmanager
def refusing_unreadable(source: Source) -> Iterator[None]:
    """Turn Spark's failures while reading `source` into one sentence that says what was found."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        meaning = next((words for pattern, words in _MEANINGS if re.search(pattern, text, re.I | re.S)), None)
        if meaning is None:
            raise  # a defect of ours, or of the machine: it keeps its traceback
        stored = source.format or "a table"
        raise DataError(
            f"{source.name}: cannot be read as {stored}: {meaning}. Check the file, or write it anew."
        ) from error


def with_row_id(table: DataFrame, source: Source) -> DataFrame:
    """Add `row_id`: the row's position, files in the order of their names.

    It does not depend on how Spark cuts the files into partitions.
    """
    if source.format == "parquet" and Path(source.location).exists():
        return _numbered_by_footers(table, sorted(table.inputFiles()))
    return _numbered_by_blocks(table)


def _numbered_by_footers(table: DataFrame, files: list[str]) -> DataFrame:
    """Local Parquet: each footer tells how many rows its file has, and Spark each row's place in the file."""
    from pyspark.sql import functions as F

    position, shift = 0, []
    for file in files:
        shift.append((file, position))
        position += pq.read_metadata(unquote(urlparse(file).path)).num_rows
    place = F.col("_metadata.row_index")
    if len(files) == 1:
        return table.select("*", place.alias(ROW_ID))
    shifts = table.sparkSession.createDataFrame(shift, "__sparkgpu_file string, __sparkgpu_shift long")
    numbered = table.select("*", F.col("_metadata.file_path").alias("__sparkgpu_file"), place.alias(ROW_ID))
    return (
        numbered.join(F.broadcast(shifts), "__sparkgpu_file")
        .withColumn(ROW_ID, F.col(ROW_ID) + F.col("__sparkgpu_shift"))
        .drop("__sparkgpu_file", "__sparkgpu_shift")
    )


def _numbered_by_blocks(table: DataFrame) -> DataFrame:
    """Any other file: Spark numbers rows within a partition in the order of the file, and tells for each
    row the file and block it came from; the rows counted in each block (one job) give where it begins."""
    from pyspark.sql import functions as F

    numbered = table.select(
        "*",
        F.col("_metadata.file_path").alias("__sparkgpu_file"),
        F.col("_metadata.file_block_start").alias("__sparkgpu_start"),
        F.monotonically_increasing_id().alias(ROW_ID),
    )
    blocks = (
        numbered.groupBy("__sparkgpu_file", "__sparkgpu_start")
        .agg(F.count(F.lit(1)).alias("rows"), F.min(ROW_ID).alias("first"))
        .collect()
    )
    position, shift = 0, []
    for file, start, rows, first in sorted(tuple(block) for block in blocks):
        shift.append((file, start, position - first))
        position += rows
    names = "__sparkgpu_file string, __sparkgpu_start long, __sparkgpu_shift long"
    if len(shift) <= 1:
        return numbered.drop("__sparkgpu_file", "__sparkgpu_start")
    return (
        numbered.join(
            F.broadcast(table.sparkSession.createDataFrame(shift, names)),
            ["__sparkgpu_file", "__sparkgpu_start"],
        )
        .withColumn(ROW_ID, F.col(ROW_ID) + F.col("__sparkgpu_shift"))
        .drop("__sparkgpu_file", "__sparkgpu_start", "__sparkgpu_shift")
    )
