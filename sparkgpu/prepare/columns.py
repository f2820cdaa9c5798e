"""The columns of a table: their types in Spark's spelling, and the one that preparation adds, the row id."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from sparkgpu.core.errors import DataError
from sparkgpu.core.words import listed

RESERVED = "__sparkgpu_"
ROW_ID = f"{RESERVED}row_id"
"""Names that no table is likely to contain."""
_TABLE = "__THIS__"  # in whose place a SQLTransformer puts the table

WHOLE_TYPES = ("tinyint", "smallint", "int", "bigint")
BROKEN_TYPES = ("float", "double")
TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
WORDS = "array<string>"
"""Lists of words, which are read as texts are."""
UNITS_OF_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_PLAIN = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
    pa.float32(): "float", pa.float64(): "double", pa.bool_(): "boolean", pa.null(): "void",
    pa.string(): "string", pa.large_string(): "string", pa.string_view(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.date32(): "date", pa.date64(): "date",
}  # fmt: skip


def is_number(kind: str) -> bool:
    """Whether a type in Spark's spelling is a number type (``interval ...`` is not an ``int``)."""
    return kind in (*WHOLE_TYPES, *BROKEN_TYPES) or kind.startswith("decimal")


def spark_type(kind: pa.DataType) -> str:
    """The type as Spark's SQL spells it; for one that Spark does not have, Arrow's own name."""
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if is_span(kind):
        return "double"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in kind)}>"
    return _PLAIN.get(kind, str(kind))


def is_nanosecond(kind: pa.DataType) -> bool:
    """Whether it is a timestamp in nanoseconds, which Spark does not have."""
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def is_span(kind: pa.DataType) -> bool:
    """Whether it is a duration or a time of day, which are read as numbers of seconds."""
    return bool(pa.types.is_duration(kind) or pa.types.is_time(kind))


def stored_as(kind: pa.DataType) -> tuple[str, str] | None:
    """For a type that Spark does not have: as what it reads its Parquet files, and the SQL of the value."""
    if is_nanosecond(kind):
        return "bigint", f"cast(timestamp_micros({{0}} div 1000) AS {spark_type(kind)})"
    if is_span(kind):
        return "int" if pa.types.is_time32(kind) else "bigint", f"{{0}} / {UNITS_OF_A_SECOND[kind.unit]}D"
    return None


def own_columns(names: Iterable[str]) -> list[str]:
    """The user's columns among `names`."""
    return [name for name in names if name != ROW_ID]


def refuse_reserved(source: str, names: Iterable[str]) -> None:
    """Raise `DataError` if a column of the user's table is called like one of ours, or breaks Spark's SQL."""
    taken = [name for name in names if name.startswith(RESERVED) or _TABLE in name]
    if taken:
        raise DataError(
            f"{source}: {listed(taken)}: names that begin with {RESERVED} or hold {_TABLE} are reserved. "
            "Rename them."
        )


def quoted(name: str) -> str:
    """A column name in the syntax of Spark's SQL; it may contain any characters."""
    return "`" + name.replace("`", "``") + "`"
