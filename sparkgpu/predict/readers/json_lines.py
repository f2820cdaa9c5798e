"""JSON lines: one object per row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from sparkgpu.errors import DataError
from sparkgpu.prepare.formats.text_files import open_text, refusing_other_text, text_files
from sparkgpu.table.source import Source

_LINES = 16_384


def read_json_lines(source: Source, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """A reader (`sparkgpu.predict.readers.reading.Reader`); columns are those of the first lines' objects.

    A column is of numbers, of true and false, or of texts, in each batch anew.
    """
    names = list(columns) if columns is not None else None
    for file in text_files(source):
        with refusing_other_text(source), open_text(file) as text:
            lines = (line for line in text if line.strip())
            while some := list(islice(lines, _LINES)):
                rows = [_row(line, source) for line in some]
                if names is None:
                    names = list(dict.fromkeys(name for row in rows for name in row))
                there = (
                    names if columns is None else [name for name in names if any(name in row for row in rows)]
                )
                yield pa.RecordBatch.from_arrays(
                    [_column([row.get(name) for row in rows]) for name in there], names=there
                )


def _row(line: str, source: Source) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        row = None
    if not isinstance(row, dict):
        raise DataError(
            f"{source.name}: cannot be read as json: it has lines that are not one JSON object each. Check "
            "the file, or write it again."
        )
    return row


def _column(values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} or kinds <= {int} or kinds <= {str}:
        return pa.array(values, from_pandas=True) if kinds else pa.nulls(len(values), pa.string())
    if kinds <= {int, float}:
        return pa.array(values, pa.float64())
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
