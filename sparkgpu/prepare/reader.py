"""Opens the user's table in any supported format.

What cannot be read is refused with one sentence; a damaged row is never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkgpu.config.registry.formats import FORMATS
from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.file_columns import FileColumns
from sparkgpu.prepare.formats.catalog_tables import open_catalog_table
from sparkgpu.prepare.formats.opening import Opener
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def open_source(session: SparkSession, source: Source, files: FileColumns | None = None) -> DataFrame:
    """The table as a DataFrame with its own columns. Raises `DataError` if it cannot be read.

    `files` is the result of `file_columns` for the source, if known.
    """
    with refusing_unreadable(source):
        if source.format is None:
            return open_catalog_table(session, source)
        opener: Opener = FORMATS.find(source.format).loaded()
        return opener(session, source, files)


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


_CHECK = "Check the file, or write it again."
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        # The last is what Spark says where the two have different types.
        r"COLUMN_ALREADY_EXISTS|Found duplicate column|AMBIGUOUS_REFERENCE"
        r"|requested schema is not compatible with the file schema",
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
        r"PARSE_SYNTAX_ERROR[\s\S]*== SQL ==\s+(.+)",
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
