"""The one parser of text tables: blocks of whole lines of CSV or JSON lines become typed tables of Arrow.

It serves local files, rows that Spark holds, and new rows. "Types of text tables" in docs/configuration.md is
the contract. A type accepts all texts of the types that it widens, so the types of the parts of a table,
found in any order, give those of the whole. Parsers and types can be pickled.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.core.words import listed
from sparkgpu.prepare.column_values import MISSING_TEXTS
from sparkgpu.prepare.columns import spark_type
from sparkgpu.prepare.spelling import spelled

Types = Mapping[str, pa.DataType]
"""Columns in order: integers, floats, booleans, dates, timestamps, text; null if no value was seen yet."""

_TIMESTAMP, _ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
_OF_INFERRED: dict[pa.DataType, pa.DataType] = {
    **{kind: kind for kind in (pa.null(), pa.int64(), pa.float64(), pa.bool_(), pa.date32())},
    **{pa.timestamp(unit): _TIMESTAMP for unit in ("s", "us", "ns")},
    **{pa.timestamp(unit, "UTC"): _ZONED for unit in ("s", "us", "ns")},
}
"""What becomes of a type that pyarrow infers; all others (times of day, lists, objects) become text."""
_WIDER = {
    frozenset({pa.int64(), pa.float64()}): pa.float64(),
    frozenset({pa.date32(), _TIMESTAMP}): _TIMESTAMP,
}
_UNSURE = (pa.date32(), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
"""Here pyarrow takes texts that no wider type accepts: dates between blanks, nanoseconds."""
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_DELIMITERS = ",;\t|"


NOT_UTF8 = "is not UTF-8 text. Save the file as UTF-8, or name its encoding in data.encoding."


class LineError(Exception):
    """A fault of one line; `place` counts the lines of the block, with the empty ones, from 0."""

    def __init__(self, place: int, fault: str) -> None:
        super().__init__(place, fault)
        self.place = place
        self.fault = fault


def unified(*found: Types) -> dict[str, pa.DataType]:
    """The types of the whole from those of its parts: the narrowest that accept all texts."""
    types: dict[str, pa.DataType] = {}
    for part in found:
        for name, kind in part.items():
            both = frozenset({types.get(name, kind), kind})
            one, *other = both - {pa.null()} or both
            types[name] = _WIDER.get(both, pa.string()) if other else one
    return types


def settled(types: Types) -> dict[str, pa.DataType]:
    """The types of a whole table: a column without a value is text."""
    return {name: pa.string() if kind == pa.null() else kind for name, kind in types.items()}


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
                tried = (_TIMESTAMP, _ZONED) if own == pa.string() else (own,)
                fitting = (kind for kind in tried if self._fits(block, column.name, kind))
                types[column.name] = next(fitting, pa.string())
        if _own_types(self.dialect):
            texts = self._table(block, dict.fromkeys(self.names, pa.string()), self.names)
            types |= {name: _own_type(texts[name], kind, self.dialect) for name, kind in types.items()}
        return types

    def read(self, block: bytes, types: Types) -> pa.Table:
        """Some of the columns, in types that all their texts have."""
        return _typed(self._table(block, _as_stored(types, self.dialect), types), types, self.dialect)

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
                next(islice(_filled(block), row.number - 1, None)),
                f"has {values}, the header has {row.expected_columns}. Give each row as many, and write no "
                "line break inside a quoted value.",
            ) from None
        _check_lines(block, table.num_rows)
        return table


@dataclass(frozen=True, kw_only=True)
class JsonParser:
    """One object in each line; a column of lists, objects or mixed values becomes JSON text."""

    dialect: Dialect = field(default_factory=Dialect)

    def infer(self, block: bytes) -> dict[str, pa.DataType]:
        """As of `CsvParser`. Texts stay texts, also those of dates that are not in the table's own format."""
        try:
            types = {column.name: column.type for column in self._table(block, {}).schema}
        except pa.ArrowInvalid:
            rows = _objects(block)
            names = dict.fromkeys(name for row in rows for name in row)
            types = {name: _type_of([row.get(name) for row in rows]) for name in names}
        plain = (pa.null(), pa.int64(), pa.float64(), pa.bool_())
        types = {name: kind if kind in plain else pa.string() for name, kind in types.items()}
        if _own_types(self.dialect):
            texts = {name: kind for name, kind in types.items() if kind == pa.string()}
            table = self._read(block, texts)
            types |= {name: _own_type(table[name], kind, self.dialect) for name, kind in texts.items()}
        return types

    def read(self, block: bytes, types: Types) -> pa.Table:
        """As of `CsvParser`; a column that the block lacks is null."""
        return _typed(self._read(block, _as_stored(types, self.dialect)), types, self.dialect)

    def _read(self, block: bytes, types: Types) -> pa.Table:
        try:
            return self._table(block, types)
        except pa.ArrowInvalid:
            rows, schema = _objects(block), pa.schema(list(types.items()))
            return pa.table(
                [_column([row.get(own.name) for row in rows], own.type) for own in schema], schema
            )

    @staticmethod
    def _table(block: bytes, types: Types) -> pa.Table:
        """Raises `pyarrow.ArrowInvalid` if pyarrow finds other types, or may find other rows."""
        as_utf8(block, None)
        block = block.rstrip(b"\r\n")
        lines = block.count(b"\n") + 1
        ends = block.count(b"}\n{") + block.count(b"}\r\n{")
        if not block.startswith(b"{") or lines != ends + 1:  # pyarrow crashes where the first is null
            raise pa.ArrowInvalid("lines that may not be one object each")
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(block)),
            pyarrow.json.ParseOptions(explicit_schema=pa.schema(list(types.items()))),
        )
        if table.num_rows != lines:
            raise pa.ArrowInvalid("other rows than lines")
        return table


Parser = CsvParser | JsonParser


def json_parser(dialect: Dialect) -> JsonParser:
    """The parser for JSON lines, where numbers have a decimal point and dates are texts."""
    return JsonParser(dialect=Dialect(date_format=dialect.date_format))


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


def as_utf8(lines: bytes, encoding: str | None) -> bytes:
    """Lines in UTF-8. Raises `LineError` if they are not in this encoding (None: UTF-8)."""
    try:
        text = lines.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        fault = f"is not {encoding} text. Name its own in data.encoding." if encoding else NOT_UTF8
        raise LineError(lines.count(b"\n", 0, error.start), fault) from None
    return lines if encoding is None else text.encode()


def no_rows(name: str) -> DataError:
    return DataError(f"{name}: the table has no rows. Give a table with rows.")


def _own_types(dialect: Dialect) -> tuple[pa.DataType, ...]:
    """The types whose texts the table spells in its own way."""
    numbers = (pa.float64(),) if dialect.decimal == "," else ()
    return numbers + ((pa.date32(), _TIMESTAMP) if dialect.date_format is not None else ())


def _own_type(texts: pa.ChunkedArray, kind: pa.DataType, dialect: Dialect) -> pa.DataType:
    """The type of a column in its own spelling; `kind` if that is not used."""
    values = texts.drop_null()
    for own in _own_types(dialect) if len(values) else ():
        usual = spelled(values, spark_type(own), dialect)
        if (own == pa.float64() and kind != pa.string()) or (own != pa.float64() and usual.equals(values)):
            continue
        try:
            usual.cast(own)
        except pa.ArrowInvalid:
            continue
        return own
    return kind


def _as_stored(types: Types, dialect: Dialect) -> dict[str, pa.DataType]:
    own = _own_types(dialect)
    return {name: pa.string() if kind in own else kind for name, kind in types.items()}


def _typed(table: pa.Table, types: Types, dialect: Dialect) -> pa.Table:
    """The table that was read `_as_stored`, with its types."""
    own = _own_types(dialect)
    for place, (name, kind) in enumerate(types.items() if own else ()):
        if kind in own:
            values = spelled(table[name], spark_type(kind), dialect).cast(kind)
            table = table.set_column(place, pa.field(name, kind), values)
    return table


def _filled(block: bytes) -> Iterator[int]:
    """The places of the lines that are not empty."""
    return (place for place, line in enumerate(block.split(b"\n")) if line.strip(b"\r"))


def _has_hexadecimal(block: bytes) -> bool:
    """Whether there may be integers such as 0x1F, which pyarrow takes for integers but not for floats."""
    return (b"x" in block or b"X" in block) and re.search(rb"0[xX]", block) is not None


def _begins_with_date(texts: pa.ChunkedArray) -> bool:
    first = "".join(texts.drop_null()[:1].to_pylist())
    return re.match(r"\d{4}-\d\d-\d\d", first) is not None


def _check_lines(block: bytes, rows: int) -> None:
    """Raise `LineError` unless each line that is not empty is a row."""
    if rows == block.count(b"\n") + (not block.endswith(b"\n")) or rows == sum(1 for _ in _filled(block)):
        return
    lines = [line.rstrip(b"\r") for line in block.split(b"\n")]
    odd = (place for place, line in enumerate(lines) if line.count(b'"') % 2 or b"\r" in line)
    raise LineError(
        next(odd, 0),
        "has a line break inside a quoted value, or a carriage return alone. Write each row in one line.",
    )


def _objects(block: bytes) -> list[dict[str, Any]]:
    """The objects of the lines, by Python: slower than pyarrow, but it knows the line of a fault."""
    lines, objects = block.split(b"\n"), []
    for place in _filled(block):
        try:
            found = json.loads(lines[place])
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise LineError(place, "is not one JSON object. Write one object in each line.")
        objects.append(found)
    return objects


def _type_of(values: list[Any]) -> pa.DataType:
    try:
        return pa.array(values).type
    except OverflowError:  # integers beyond 64 bits, as pyarrow's parser has it
        return pa.float64()
    except pa.ArrowException:
        return pa.string()


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.string():
        values = [
            value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for value in values
        ]
    return pa.array(
        [None if v is None else float(v) for v in values] if kind == pa.float64() else values, kind
    )
