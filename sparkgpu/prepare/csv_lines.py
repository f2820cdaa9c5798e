"""Blocks of whole lines of CSV as typed tables of Arrow, by a parser that can be pickled."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.core.words import listed
from sparkgpu.prepare.column_values import BLANKS, LEADING_ZERO, MISSING_TEXTS
from sparkgpu.prepare.text import (
    PADDED,
    TIMESTAMP,
    ZONED,
    LineError,
    Types,
    as_stored,
    as_utf8,
    filled,
    no_rows,
    own_type,
    own_types,
    typed,
)

_OF_INFERRED: dict[pa.DataType, pa.DataType] = {
    **{kind: kind for kind in (pa.null(), pa.int64(), pa.float64(), pa.bool_(), pa.date32())},
    **{pa.timestamp(unit): TIMESTAMP for unit in ("s", "us", "ns")},
    **{pa.timestamp(unit, "UTC"): ZONED for unit in ("s", "us", "ns")},
}
"""What becomes of a type that pyarrow infers; all others (times of day, lists, objects) become text."""
_UNSURE = (pa.date32(), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
"""Here pyarrow takes texts that no wider type accepts: dates between blanks, nanoseconds."""
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_DELIMITERS = ",;\t|"


@dataclass(frozen=True, kw_only=True)
class CsvParser:
    """CSV as in RFC 4180, but each row in one line, with any of the usual delimiters.

    Parsers take blocks of whole lines without a header, and raise `LineError`.
    """

    delimiter: str
    names: tuple[str, ...]
    dialect: Dialect = field(default_factory=Dialect)

    def infer(self, block: bytes) -> dict[str, pa.DataType]:
        """The types of the columns, from the rows of the block alone."""
        table = self._table(block, {}, self.names)
        types = {column.name: _OF_INFERRED.get(column.type, pa.string()) for column in table.schema}
        unsure = (*_UNSURE, pa.int64()) if _has_hexadecimal(block) else _UNSURE
        for column in table.schema:
            own = types[column.name]
            if column.type in unsure or (
                column.type == pa.string() and _begins_with_date(table[column.name])
            ):
                tried = (TIMESTAMP, ZONED) if own == pa.string() else (own,)
                fitting = (kind for kind in tried if self._fits(block, column.name, kind))
                types[column.name] = next(fitting, pa.string())
        if own_types(self.dialect):
            texts = self._table(block, dict.fromkeys(self.names, pa.string()), self.names)
            types |= {name: own_type(texts[name], kind, self.dialect) for name, kind in types.items()}
        whole = [name for name, kind in types.items() if kind == pa.int64()]
        if whole and _has_leading_zeros(block, self.delimiter):
            texts = self._table(block, dict.fromkeys(whole, pa.string()), whole)
            for name in filter(lambda name: _is_padded(texts[name]), whole):
                types[name] = pa.string() if name in self.dialect.codes else PADDED
        return types

    def read(self, block: bytes, types: Types) -> pa.Table:
        """Some of the columns, in types that all their texts have."""
        return typed(self._table(block, as_stored(types, self.dialect), types), types, self.dialect)

    def _fits(self, block: bytes, name: str, kind: pa.DataType) -> bool:
        """Whether a column has this type, by a stricter reading of dates and of integers than pyarrow's."""
        # Dates are cast from texts, since the parser would ignore the blanks around them.
        stricter = {pa.date32(): pa.string(), pa.int64(): pa.float64()}
        try:
            self._table(block, {name: stricter.get(kind, kind)}, [name]).cast(pa.schema([(name, kind)]))
        except pa.ArrowInvalid:
            return False
        return True

    def _table(self, block: bytes, types: Types, names: Iterable[str]) -> pa.Table:
        """Raises `LineError`, and `pyarrow.ArrowInvalid` if a value is not of its type."""
        as_utf8(block, None)
        ragged: list[pyarrow.csv.InvalidRow] = []

        def refuse(row: pyarrow.csv.InvalidRow) -> str:
            ragged.append(row)
            return "error"

        try:
            table = pyarrow.csv.read_csv(
                pa.py_buffer(block),
                read_options=pyarrow.csv.ReadOptions(
                    column_names=self.names, use_threads=False, block_size=len(block)
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self.delimiter, invalid_row_handler=refuse),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(names),
                    null_values=MISSING_TEXTS,
                    strings_can_be_null=True,
                    true_values=_TRUE,
                    false_values=_FALSE,
                    decimal_point=self.dialect.decimal_point,
                ),
            )
        except pa.ArrowInvalid:
            if not ragged:
                raise
            row = ragged[0]
            values = f"{row.actual_columns} value{'s' if row.actual_columns != 1 else ''}"
            raise LineError(
                next(islice(filled(block), row.number - 1, None)),
                f"has {values}, the header has {row.expected_columns}. Give each row as many, and write no "
                "line break inside a quoted value.",
            ) from None
        _check_lines(block, table.num_rows)
        return table


def csv_parser(name: str, headers: Iterable[tuple[str, str]], dialect: Dialect) -> CsvParser:
    """The parser for files with these headers, each with its file's name.

    Raises `DataError` for duplicate column names and for files with different headers.
    """
    first: CsvParser | None = None
    first_file = ""
    for file, text in headers:
        line = text.removeprefix("\ufeff").rstrip("\r\n")
        outside = re.sub(r'"[^"]*"', "", line)
        delimiter = dialect.separator or max(_DELIMITERS, key=outside.count)  # a comma, if there is none
        try:
            names = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error as error:
            raise DataError(
                f"{file}: its header cannot be read ({error}). Write one row a line, with a line feed at its "
                "end."
            ) from None
        # A column without a name is called by its place.
        found = CsvParser(
            delimiter=delimiter,
            names=tuple(own or f"_c{place}" for place, own in enumerate(names)),
            dialect=dialect,
        )
        if first is None:
            first, first_file = found, file
            twice = [own for own, count in Counter(found.names).items() if count > 1]
            if twice:
                raise DataError(
                    f"{name}: duplicate column names: {listed(twice)}. Give each column one name."
                )
        elif found != first:
            raise DataError(
                f"{name}: the header of {file} differs from {first_file}. Give all files the same columns in "
                "the same order."
            )
    if first is None:
        raise no_rows(name)
    return first


def _has_hexadecimal(block: bytes) -> bool:
    """Whether there may be integers such as 0x1F, which pyarrow takes for integers but not for floats."""
    return (b"x" in block or b"X" in block) and re.search(rb"0[xX]", block) is not None


def _has_leading_zeros(block: bytes, delimiter: str) -> bool:
    """Whether a value may begin as `LEADING_ZERO`; Arrow searches ten times as fast as it parses."""
    form = rf'(^|[\n"{re.escape(delimiter)}])\s*[+-]?0[0-9]'
    return pc.match_substring_regex(pa.scalar(block, pa.large_binary()), form).as_py() is True


def _is_padded(texts: pa.ChunkedArray) -> bool:
    return pc.any(pc.match_substring_regex(pc.utf8_trim(texts, BLANKS), LEADING_ZERO)).as_py() is True


def _begins_with_date(texts: pa.ChunkedArray) -> bool:
    first = "".join(texts.drop_null()[:1].to_pylist())
    return re.match(r"\d{4}-\d\d-\d\d", first) is not None


def _check_lines(block: bytes, rows: int) -> None:
    """Raise `LineError` unless each line that is not empty is a row."""
    if rows == block.count(b"\n") + (not block.endswith(b"\n")) or rows == sum(1 for _ in filled(block)):
        return
    lines = [line.rstrip(b"\r") for line in block.split(b"\n")]
    odd = (place for place, line in enumerate(lines) if line.count(b'"') % 2 or b"\r" in line)
    raise LineError(
        next(odd, 0),
        "has a line break inside a quoted value, or a carriage return alone. Write each row in one line.",
    )
