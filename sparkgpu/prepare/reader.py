"""Opens the user's table in any supported format.

Reads Parquet (file or folder), CSV (plain or compressed), ORC, JSON lines and catalog tables. It refuses an
unreadable table with one sentence, and never skips a damaged row.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.file_columns import FileColumns, file_columns
from sparkgpu.table.source import Source, table_files
from sparkgpu.words import listed, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType


def open_source(session: SparkSession, source: Source, files: FileColumns | None = None) -> DataFrame:
    """The table as a DataFrame with its own columns. Raises `DataError` if it cannot be read.

    `files` is the result of `file_columns` for the source, if known.
    """
    with refusing_unreadable(source):
        if source.format is None:
            return _open_catalog_table(session, source)
        reader = session.read
        location = _literal(source.location)
        if source.format == "csv":
            options = {
                "header": "true",
                "mode": "FAILFAST",
                "sep": _check_headers(source),
                "escape": '"',  # a quote inside quotes is doubled (RFC 4180)
            }
            table = reader.options(**options, inferSchema="true").csv(location)
            codes = _codes_taken_for_numbers(source, table, options["sep"])
            if not codes:
                return table
            columns = (f"{quoted(n)} {'string' if n in codes else kind}" for n, kind in table.dtypes)
            return session.read.options(**options).schema(", ".join(columns)).csv(location)
        if source.format == "json":
            return reader.option("mode", "FAILFAST").json(location)
        return _open_typed(session, source, location, files or file_columns(source))


def _literal(location: str) -> str:
    """A path without wildcards: Spark would read the brackets in ``sales[1].csv`` as a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", location) if Path(location).exists() else location


def _open_catalog_table(session: SparkSession, source: Source) -> DataFrame:
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


def _open_typed(session: SparkSession, source: Source, location: str, files: FileColumns | None) -> DataFrame:
    """Parquet or ORC with the columns of all files, null in files that lack a column.

    In Parquet, Spark reads pandas' moments in nanoseconds as whole numbers; here they become moments.
    """
    from pyspark.sql import functions as F

    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    assert source.format is not None
    reader = session.read.format(source.format)
    if files is None:
        return reader.load(location)
    if files.absent:
        reader = reader.schema(_all_columns(session, source.format, files))
    table = reader.load(location)
    kinds = {
        name: found[0]
        for name, found in files.kinds.items()
        if source.format == "parquet" and any(map(_is_nanoseconds, found))
    }
    if not kinds:
        return table
    if any(len(files.kinds[name]) > 1 for name in kinds):  # Spark would mistake one unit for the other
        raise DataError(
            f"{source.name}: cannot be read as parquet: its files disagree on the type of a column. Write "
            "them again with one schema."
        )
    moment = "timestamp_micros({0} div 1000)"
    return table.select(
        *(
            F.expr(
                f"cast({moment.format(quoted(name))} AS {'timestamp' if kinds[name].tz else 'timestamp_ntz'})"
            ).alias(name)
            if name in kinds
            else F.col(quoted(name))
            for name in table.columns
        )
    )


def _all_columns(session: SparkSession, format: str, files: FileColumns) -> StructType:
    """Spark's own view of all columns, from the footers of a few files.

    Spark uses the columns of the first file for a whole folder, so the view is joined from several files.
    """
    from pyspark.sql.types import StructType

    fields: dict[str, StructField] = {}
    for file in files.showing:
        for field in session.read.format(format).load(_literal(str(file))).schema:
            fields.setdefault(field.name, field)
    return StructType(list(fields.values()))


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def storable(table: DataFrame) -> DataFrame:
    """The table, with columns of types that files cannot store (no type, intervals) as text."""
    from pyspark.sql import functions as F

    return table.select(
        *(
            F.col(quoted(name)).cast("string").alias(name)
            if kind == "void" or kind.startswith("interval")
            else F.col(quoted(name))
            for name, kind in table.dtypes
        )
    )


def _text_files(source: Source) -> list[Path]:
    """The files of a local text table that Python can open like Spark."""
    path = Path(source.location)
    files = table_files(path) if path.is_dir() else [path] if path.exists() else []
    return [file for file in files if file.stat().st_size and file.suffix.lower() != ".deflate"]


def _open_text(path: Path) -> IO[str]:
    openers: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".bz2": bz2.open}
    opener: Callable[..., IO[str]] = openers.get(path.suffix.lower(), open)
    return opener(path, "rt", encoding="utf-8-sig", newline="")


@contextmanager
def _refusing_other_text(source: Source) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise DataError(f"{source.name}: it is not UTF-8 text. Save the file as UTF-8.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{source.name}: cannot be read ({error}). Check the file, or write it again."
        ) from None


def refuse_other_encodings(source: Source) -> None:
    """Raise `DataError` if a text file is not UTF-8; Spark would replace what it cannot decode by U+FFFD."""
    with _refusing_other_text(source):
        for path in _text_files(source):
            with _open_text(path) as file:
                while file.read(1 << 20):
                    pass


def _check_headers(source: Source) -> str:
    """Refuse duplicate column names and files with different headers. Returns the delimiter.

    Spark would silently rename duplicates, and read files with other headers by position.
    """
    first: tuple[Path, str, list[str]] | None = None
    for path in _text_files(source):
        with _refusing_other_text(source), _open_text(path) as file:
            line = next((line for line in file if line.strip()), "")
        outside = re.sub(r'"[^"]*"', "", line)
        delimiter = max(",;\t|", key=outside.count) if any(mark in outside for mark in ",;\t|") else ","
        names = next(csv.reader([line], delimiter=delimiter), [])
        if first is None:
            first = path, delimiter, names
            twice = [name for name, count in Counter(names).items() if count > 1 and name]
            if twice:
                raise DataError(
                    f"{source.name}: duplicate column names: {listed(twice)}. Give each column one name."
                )
        elif names != first[2]:
            raise DataError(
                f"{source.name}: the header of {path.name} differs from {first[0].name}. Give all files the "
                "same columns in the same order."
            )
    return first[1] if first else ","


def _codes_taken_for_numbers(source: Source, table: DataFrame, delimiter: str) -> set[str]:
    """Columns of codes such as ``12D`` and ``14F``, which Java, and so Spark, reads as numbers 12 and 14.

    Spark took the whole column for numbers, so the first rows are enough to recognise codes.
    """
    suspects = {name for name, kind in table.dtypes if kind == "double"}
    found: set[str] = set()
    for path in _text_files(source)[:1] if suspects else ():
        with _refusing_other_text(source), _open_text(path) as file:
            for row in islice(csv.DictReader(file, delimiter=delimiter), _SAMPLE_ROWS):
                found |= {
                    name
                    for name in suspects
                    if re.fullmatch(r"\s*[-+.\d]*\d\.?[dDfF]\s*", row.get(name) or "")
                }
    return found


_SAMPLE_ROWS = 200
_CHECK = "Check the file, or write it again."
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        r"COLUMN_ALREADY_EXISTS|Found duplicate column|AMBIGUOUS_REFERENCE",
        "it has duplicate column names",
        "Give each column one name.",
    ),
    (r"Permission denied|AccessControlException", "you have no permission to read it", "Ask its owner."),
    (
        r"Illegal Parquet type: (.+?)\.?\s*$",
        "it has a column of type {0}, which Spark does not support",
        "Leave that column out, or convert it.",
    ),
    (
        r"Parquet column cannot be converted|SchemaColumnConvertNotSupported",
        "its files disagree on the type of a column",
        "Write them again with one schema.",
    ),
    (
        r"library not available|UnsatisfiedLinkError",
        "this Spark cannot read its compression",
        "Compress it with gzip.",
    ),
    (
        r"_corrupt_record|Malformed records are detected in schema inference",
        "it has lines that are not one JSON object each",
        _CHECK,
    ),
    (
        r"MALFORMED_|Malformed records|BadRecord|TextParsingException",
        "it has rows that do not fit the header, or a line break inside a value",
        _CHECK,
    ),
    (
        r"not a Parquet file|can not read|Could not read footer|CANNOT_READ_FILE_FOOTER|Malformed ORC"
        r"|EOFException|Unexpected end|incorrect header check|error while reading file|FAILED_READ_FILE",
        "it is damaged, cut short, or in another format",
        _CHECK,
    ),
    (r"UNABLE_TO_INFER_SCHEMA", "it contains no data files", _CHECK),
)


@contextmanager
def refusing_unreadable(source: Source) -> Iterator[None]:
    """Turn Spark's failures while reading `source` into one sentence with the fault."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError, pa.ArrowInvalid) as error:
        text = str(error)
        for pattern, words, advice in _MEANINGS:
            match = re.search(pattern, text, re.IGNORECASE | re.MULTILINE)
            if match:
                stored = source.format or "a table"
                raise DataError(
                    f"{source.name}: cannot be read as {stored}: {words.format(*match.groups())}. {advice}"
                ) from error
        raise  # our defect, or the machine's: keep its traceback
