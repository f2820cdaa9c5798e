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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from sparkgpu.errors import DataError, listed, nearest
from sparkgpu.spark.columns import ROW_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Format = Literal["parquet", "csv", "orc", "json"]

TABLE_PREFIX = "table:"
_FORMATS: dict[str, Format] = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".orc": "orc",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
_COMPRESSED = (".gz", ".bz2", ".zst", ".deflate", ".snappy", ".lz4")
_READABLE = "Parquet, CSV (plain or .gz/.bz2), ORC, JSON lines, or table:NAME"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a table lies and how it is stored. `format` None is a table of the catalog."""

    name: str
    location: str
    format: Format | None


def find_source(text: str) -> Source:
    """Tell from the text of SOURCE (and the files there) what it is. Needs no Spark.

    Raises `DataError` when there is nothing there, or nothing that can be read.
    """
    if text.startswith(TABLE_PREFIX):
        name = text.removeprefix(TABLE_PREFIX)
        if not name:
            raise DataError("table: names no table; write table:NAME, such as table:sales.orders.")
        return Source(name=text, location=name, format=None)
    if re.match(r"[a-z0-9]+://", text) and not text.startswith("file://"):
        return Source(name=text, location=text, format=_format(text, Path(text.rstrip("/"))))
    path = Path(text.removeprefix("file://")).expanduser()
    if path.is_dir():
        return Source(name=text, location=str(path.resolve()), format=_folder_format(text, path))
    if not path.exists():
        parent = path.parent
        names = [item.name for item in parent.iterdir()] if parent.is_dir() else []
        hint = nearest(path.name, names) if parent.is_dir() else f" There is no folder {parent} either."
        raise DataError(f"{text}: there is no such file.{hint} Give {_READABLE}.")
    if path.stat().st_size == 0:
        raise DataError(f"{text}: the file is empty (0 bytes). Give a table with a header and rows.")
    return Source(name=text, location=str(path.resolve()), format=_format(text, path))


def _format(text: str, path: Path) -> Format:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".zip":
        raise DataError(
            f"{text}: Spark cannot read .zip archives. Unpack it, or compress the table with gzip."
        )
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    found = _FORMATS.get(suffixes[-1]) if suffixes else None
    if found is None:
        ending = path.suffix or "no ending"
        raise DataError(f"{text}: cannot tell how it is stored ({ending}). Give {_READABLE}.")
    return found


def _folder_format(text: str, folder: Path) -> Format:
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise DataError(f"{text}: the folder holds no files. Give a folder of {_READABLE}.")
    formats = Counter(_format(str(path), path) for path in files)
    if len(formats) > 1:
        raise DataError(
            f"{text}: the folder mixes {listed(formats)} files; keep one kind in it, or name a file."
        )
    return next(iter(formats))


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
    if not path.exists() or path.suffix.lower() in set(_COMPRESSED) - set(openers):
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
