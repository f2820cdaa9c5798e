"""Text tables: the types that their texts have, in the table's own spelling, and the faults of their lines.

"Types of text tables" in docs/configuration.md is the contract; `csv_lines` and `json_lines` parse blocks of
whole lines by it, of local files, of rows that Spark holds, and of new rows. A type accepts all texts of the
types that it widens, so the types of the parts of a table, found in any order, give those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.prepare.columns import spark_type
from sparkgpu.prepare.spelling import spelled

Types = Mapping[str, pa.DataType]
"""Columns in order: integers, floats, booleans, dates, timestamps, text; null if no value was seen yet."""

TIMESTAMP, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
PADDED = pa.int32()
"""Integers of which some have leading zeros, until the types are `settled`: then they are as any others."""
_WIDER = {
    frozenset({PADDED, pa.int64()}): PADDED,
    frozenset({PADDED, pa.float64()}): pa.float64(),
    frozenset({pa.int64(), pa.float64()}): pa.float64(),
    frozenset({pa.date32(), TIMESTAMP}): TIMESTAMP,
}
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
    final = {pa.null(): pa.string(), PADDED: pa.int64()}
    return {name: final.get(kind, kind) for name, kind in types.items()}


def padded(types: Types) -> tuple[str, ...]:
    """The columns of integers with leading zeros."""
    return tuple(name for name, kind in types.items() if kind == PADDED)


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


def own_types(dialect: Dialect) -> tuple[pa.DataType, ...]:
    """The types whose texts the table spells in its own way."""
    numbers = (pa.float64(),) if dialect.decimal == "," else ()
    return numbers + ((pa.date32(), TIMESTAMP) if dialect.date_format is not None else ())


def own_type(texts: pa.ChunkedArray, kind: pa.DataType, dialect: Dialect) -> pa.DataType:
    """The type of a column in its own spelling; `kind` if that is not used."""
    values = texts.drop_null()
    for own in own_types(dialect) if len(values) else ():
        usual = spelled(values, spark_type(own), dialect)
        if (own == pa.float64() and kind != pa.string()) or (own != pa.float64() and usual.equals(values)):
            continue
        try:
            usual.cast(own)
        except pa.ArrowInvalid:
            continue
        return own
    return kind


def as_stored(types: Types, dialect: Dialect) -> dict[str, pa.DataType]:
    own = own_types(dialect)
    return {name: pa.string() if kind in own else kind for name, kind in types.items()}


def typed(table: pa.Table, types: Types, dialect: Dialect) -> pa.Table:
    """The table that was read `as_stored`, with its types."""
    own = own_types(dialect)
    for place, (name, kind) in enumerate(types.items() if own else ()):
        if kind in own:
            values = spelled(table[name], spark_type(kind), dialect).cast(kind)
            table = table.set_column(place, pa.field(name, kind), values)
    return table


def filled(block: bytes) -> Iterator[int]:
    """The places of the lines that are not empty."""
    return (place for place, line in enumerate(block.split(b"\n")) if line.strip(b"\r"))
