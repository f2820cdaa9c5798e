"""Blocks of whole JSON lines as typed tables of Arrow, by a parser that can be pickled."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.json

from sparkgpu.core.table.dialect import Dialect
from sparkgpu.prepare.text import LineError, Types, as_stored, as_utf8, filled, own_type, own_types, typed


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
        if own_types(self.dialect):
            texts = {name: kind for name, kind in types.items() if kind == pa.string()}
            table = self._read(block, texts)
            types |= {name: own_type(table[name], kind, self.dialect) for name, kind in texts.items()}
        return types

    def read(self, block: bytes, types: Types) -> pa.Table:
        """As of `CsvParser`; a column that the block lacks is null."""
        return typed(self._read(block, as_stored(types, self.dialect)), types, self.dialect)

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


def json_parser(dialect: Dialect) -> JsonParser:
    """The parser for JSON lines, where numbers have a decimal point and dates are texts."""
    return JsonParser(dialect=Dialect(date_format=dialect.date_format))


def _objects(block: bytes) -> list[dict[str, Any]]:
    """The objects of the lines, by Python: slower than pyarrow, but it knows the line of a fault."""
    lines, objects = block.split(b"\n"), []
    for place in filled(block):
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
