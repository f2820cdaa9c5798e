"""CSV with a header, plain or compressed, with any of the usual delimiters."""

from __future__ import annotations

import csv
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.file_columns import FileColumns
from sparkgpu.prepare.formats.opening import literal
from sparkgpu.prepare.formats.text_files import open_text, refusing_other_text, text_files
from sparkgpu.table.source import Source
from sparkgpu.words import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SAMPLE_ROWS = 200


def open_csv(session: SparkSession, source: Source, files: FileColumns | None) -> DataFrame:
    """The table, with types inferred from all rows; a damaged row is refused, never skipped."""
    location = literal(source.location)
    options = {
        "header": "true",
        "mode": "FAILFAST",
        "sep": _check_headers(source),
        "escape": '"',  # a quote inside quotes is doubled (RFC 4180)
    }
    table = session.read.options(**options, inferSchema="true").csv(location)
    codes = _codes_taken_for_numbers(source, table, options["sep"])
    if not codes:
        return table
    columns = (f"{quoted(n)} {'string' if n in codes else kind}" for n, kind in table.dtypes)
    return session.read.options(**options).schema(", ".join(columns)).csv(location)


def _check_headers(source: Source) -> str:
    """Refuse duplicate column names and files with different headers. Returns the delimiter.

    Spark would silently rename duplicates, and read files with other headers by position.
    """
    first: tuple[Path, str, list[str]] | None = None
    for path in text_files(source):
        with refusing_other_text(source), open_text(path) as file:
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
    for path in text_files(source)[:1] if suspects else ():
        with refusing_other_text(source), open_text(path) as file:
            for row in islice(csv.DictReader(file, delimiter=delimiter), _SAMPLE_ROWS):
                found |= {
                    name
                    for name in suspects
                    if re.fullmatch(r"\s*[-+.\d]*\d\.?[dDfF]\s*", row.get(name) or "")
                }
    return found
