"""CSV with a header, plain or compressed, with any of the usual delimiters."""

from __future__ import annotations

import csv
import re
from itertools import islice
from typing import TYPE_CHECKING

from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.file_columns import FileColumns
from sparkgpu.prepare.formats.csv_header import check_headers
from sparkgpu.prepare.formats.opening import literal
from sparkgpu.prepare.formats.text_files import open_text, refusing_other_text, text_files
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SAMPLE_ROWS = 200


def open_csv(session: SparkSession, source: Source, files: FileColumns | None) -> DataFrame:
    """The table, with types inferred from all rows; a damaged row is refused, never skipped."""
    location = literal(source.location)
    options = {
        "header": "true",
        "mode": "FAILFAST",
        "sep": check_headers(source).delimiter,
        "escape": '"',  # a quote inside quotes is doubled (RFC 4180)
    }
    table = session.read.options(**options, inferSchema="true").csv(location)
    codes = _codes_taken_for_numbers(source, table, options["sep"])
    if not codes:
        return table
    columns = (f"{quoted(n)} {'string' if n in codes else kind}" for n, kind in table.dtypes)
    return session.read.options(**options).schema(", ".join(columns)).csv(location)


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
