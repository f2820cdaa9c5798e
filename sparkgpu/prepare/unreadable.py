"""What Spark says of a table that it cannot read, in one sentence of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from sparkgpu.core.errors import DataError, fault_of_machine
from sparkgpu.core.table.source import Source
from sparkgpu.prepare.file_columns import CHANGED

_CHECK = "Check the file, or write it again."
_DISAGREEING = "its files disagree on the type of a column. Write them again with one schema."
_MEANINGS = (
    (
        # The last is what Spark says where the two have different types.
        r"COLUMN_ALREADY_EXISTS|Found duplicate column|AMBIGUOUS_REFERENCE"
        r"|requested schema is not compatible with the file schema",
        "it has duplicate column names. Give each column one name.",
    ),
    (r"Permission denied|AccessControlException", "you have no permission to read it. Ask its owner."),
    (
        r"Illegal Parquet type: (.+?)\.?\s*$",
        "it has a column of type {0}, which Spark does not support. Leave that column out, or convert it.",
    ),
    (
        r"Parquet column cannot be converted|SchemaColumnConvertNotSupported|MERGE_SCHEMA|merging schema",
        _DISAGREEING,
    ),
    (
        r"library not available|UnsatisfiedLinkError",
        "this Spark cannot read its compression. Compress it with gzip.",
    ),
    (
        r"not a Parquet file|can not read|Could not read footer|CANNOT_READ_FILE_FOOTER|Malformed ORC"
        r"|Unexpected end of .*input stream|incorrect header check|error while reading file|FAILED_READ_FILE",
        f"it is damaged, cut short, or in another format. {_CHECK}",
    ),
    (r"SparkFileNotFoundException", CHANGED),
    (r"UNABLE_TO_INFER_SCHEMA", f"it contains no data files. {_CHECK}"),
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
        if own := re.search(
            rf"{DataError.__module__}\.{DataError.__name__}: (.+)", text
        ):  # of a Python worker
            raise DataError(own[1]) from None
        if fault_of_machine(error) and "ermission denied" not in text:
            raise
        for pattern, sentence in _MEANINGS:
            if match := re.search(pattern, text, re.IGNORECASE | re.MULTILINE):
                stored = source.format or "a table"
                raise DataError(
                    f"{source.name}: cannot be read as {stored}: {sentence.format(*match.groups())}"
                ) from error
        raise  # our defect, or the machine's: keep its traceback
