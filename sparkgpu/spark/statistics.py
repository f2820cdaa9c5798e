"""One pass over the source that gathers what `sparkgpu.spark.roles` decides on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sparkgpu.config import Role
from sparkgpu.spark.columns import own_columns, quoted, text_literal
from sparkgpu.spark.roles import BROKEN_TYPES, WHOLE_TYPES, ColumnStatistics, is_number

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MISSING_MARKS = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "?", "-")
"""Texts that stand for a missing number in text files (a category keeps them as a level)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800, 253_402_300_799  # seconds

TIME_PARTS: dict[str, str] = {
    "year": "year({0})",
    "month": "month({0})",
    "day": "dayofmonth({0})",
    "weekday": "dayofweek({0})",
    "hour": "hour({0})",
    "minute": "minute({0})",
    "days since 1970": "unix_timestamp({0}) / 86400D",
}
"""The useful parts of a timestamp, each as SQL over a column."""


@dataclass(frozen=True, kw_only=True)
class TableStatistics:
    """Figures of the whole table. The fingerprint is of the rows' content, in whatever order; None where it
    is still to be taken.

    `replaced` counts texts with U+FFFD in them, which is what Spark makes of bytes that are not UTF-8.
    `by_pyarrow` says that pyarrow gathered them, and so reads the table as Spark does.
    """

    rows: int
    columns: Mapping[str, ColumnStatistics]
    fingerprint: str | None = None
    replaced: int = 0
    by_pyarrow: bool = False


def text_as_number(column: str) -> str:
    """The SQL that reads a text as a number; null for a mark of a missing value and for any other text.

    Java takes ``12D`` and ``14F`` for numbers; to a reader they are codes.
    """
    marks = ", ".join(map(text_literal, MISSING_MARKS))
    return (
        f"CASE WHEN trim({column}) NOT IN ({marks}) AND NOT trim({column}) RLIKE '[0-9.][dDfF]$' "
        f"THEN try_cast({column} AS double) END"
    )


def finite(number: str) -> str:
    """The SQL of a number that is null where it is not finite (to Spark NaN is above infinity)."""
    return f"CASE WHEN abs({number}) < double('inf') THEN {number} END"


def content_hash(table: DataFrame) -> Column:
    """A 64-bit hash of a row's content (columns by name, so that their order does not matter)."""
    from pyspark.sql import functions as F

    types = dict(table.dtypes)
    hashable = [name for name in own_columns(types) if "map<" not in types[name]]
    return F.xxhash64(*(F.col(quoted(name)) for name in sorted(hashable)))


def gather(table: DataFrame, *, target: str, text_file: bool, roles: Mapping[str, Role]) -> TableStatistics:
    """Count, over all rows, what the roles are decided on, in one job of plain sums and extremes.

    How many levels a text column has is not asked here: the job that counts the levels tells
    (`sparkgpu.spark.features`), and sketches of distinct counts cost ten times all the rest. `text_file`
    marks formats without types (CSV, JSON), where numbers with ``NA`` among them arrive as text.
    """
    from pyspark.sql import functions as F

    types = own_types(table)
    wanted = _content(table)
    for position, (name, kind) in enumerate(types.items()):
        for key, sql in _expressions(quoted(name), kind, text_file, roles.get(name), name == target).items():
            wanted.append(F.expr(sql).alias(f"{position}:{key}"))
    row = table.agg(*wanted).first()
    assert row is not None
    found = row.asDict()
    figures: dict[int, dict[str, Any]] = {position: {} for position in range(len(types))}
    for key, value in found.items():
        position_text, mark, figure = key.partition(":")
        if mark:
            figures[int(position_text)][figure] = value
    columns = {
        name: _statistics(name, kind, found["rows"], figures[position])
        for position, (name, kind) in enumerate(types.items())
    }
    return TableStatistics(
        rows=found["rows"],
        fingerprint=_digest(types, found),
        replaced=sum(figure.get("replaced") or 0 for figure in figures.values()),
        columns=_count_unusual(table, columns),
    )


def own_types(table: DataFrame) -> dict[str, str]:
    """The user's columns and their types, as Spark spells them."""
    own = set(own_columns(table.columns))
    return {name: kind for name, kind in table.dtypes if name in own}


def fingerprint(table: DataFrame) -> str:
    """The fingerprint of `TableStatistics`, by itself."""
    row = table.agg(*_content(table)).first()
    assert row is not None
    return _digest(own_types(table), row.asDict())


def _content(table: DataFrame) -> list[Column]:
    """The aggregates that a fingerprint is made of."""
    from pyspark.sql import functions as F

    hashed = content_hash(table)
    return [
        F.count(F.lit(1)).alias("rows"),
        # Two equal rows cancel out in the first, not in the second (of 32 bits each, so it cannot overflow).
        F.bit_xor(hashed).alias("mixed"),
        F.sum(F.shiftright(hashed, 32)).alias("sum"),
    ]


def _digest(types: Mapping[str, str], found: Mapping[str, Any]) -> str:
    content = (sorted(types.items()), found["rows"], found["mixed"], found["sum"])
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


def _expressions(
    column: str, kind: str, text_file: bool, role: Role | None, is_target: bool
) -> dict[str, str]:
    """The aggregates of one column, by the name of the figure, in SQL."""
    found = {"values": f"count({column})"}
    if is_number(kind):
        found["least"], found["greatest"] = f"double(min({column}))", f"double(max({column}))"
        if is_target and kind not in WHOLE_TYPES:
            found["broken"] = f"count_if({column} <> floor({column}))"
    elif kind == "boolean":
        found["varies"] = f"min({column}) < max({column})"
    elif kind == "string" and text_file:
        marks = ", ".join(map(text_literal, MISSING_MARKS))
        number = text_as_number(column)
        found["unparsable"] = f"count_if(trim({column}) NOT IN ({marks}) AND {number} IS NULL)"
        found["numbers"] = f"count({number})"
        found["infinite"] = f"count_if(abs({number}) = double('inf'))"
        found["least"], found["greatest"] = f"min({finite(number)})", f"max({finite(number)})"
        found["replaced"] = f"count_if(contains({column}, '\ufffd'))"
        if is_target:
            found["broken"] = f"count_if({number} <> floor({number}))"
    if kind in ("date", "timestamp", "timestamp_ntz") or role == "timestamp":
        seconds = f"unix_timestamp(try_cast({column} AS timestamp))"
        for figure, sql in (
            ("moment", seconds),
            ("in day", f"pmod({seconds}, 86400)"),
            ("in hour", f"pmod({seconds}, 3600)"),
        ):
            found[f"least {figure}"], found[f"greatest {figure}"] = f"min({sql})", f"max({sql})"
    return found


def _statistics(name: str, kind: str, rows: int, found: Mapping[str, Any]) -> ColumnStatistics:
    unparsable = found.get("unparsable")
    is_text = kind == "string" and unparsable != 0  # not of numbers written as text
    least, greatest = (None, None) if is_text else (found.get("least"), found.get("greatest"))
    infinite = 0 if is_text else found.get("infinite", 0)
    varies = least != greatest or infinite > 0 if least is not None else found.get("varies", True)
    return ColumnStatistics(
        name=name,
        type=kind,
        rows=rows,
        values=int(found["values" if is_text else "numbers"] if "numbers" in found else found["values"]),
        varies=bool(varies),
        infinite=infinite,
        least=least,
        greatest=greatest,
        whole=kind in WHOLE_TYPES or (not is_text and found.get("broken") == 0),
        unparsable=unparsable,
        parts=varying_parts(found),
    )


def varying_parts(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a timestamp that differ between rows, from its extremes (``least moment``, ``greatest in
    day`` and so on: seconds, UTC; none where there is no value).

    Taking every row's date apart to ask each part would cost more than all other figures together.
    """
    if found.get("least moment") is None or found["least moment"] == found["greatest moment"]:
        return ()
    # Spark's moments reach beyond the years 1 to 9999 that Python knows.
    first, last = (
        _EPOCH + timedelta(seconds=min(max(found[f"{end} moment"], _FIRST_MOMENT), _LAST_MOMENT))
        for end in ("least", "greatest")
    )
    in_day = [found[f"{end} in day"] // 3600 for end in ("least", "greatest")]
    in_hour = [found[f"{end} in hour"] // 60 for end in ("least", "greatest")]
    varies = {
        "year": first.year != last.year,
        "month": (first.year, first.month) != (last.year, last.month),
        "day": first.date() != last.date(),
        "weekday": first.date() != last.date(),
        "hour": in_day[0] != in_day[1],
        "minute": in_hour[0] != in_hour[1],
        "days since 1970": True,
    }
    return tuple(part for part in TIME_PARTS if varies[part])


def _count_unusual(table: DataFrame, columns: Mapping[str, ColumnStatistics]) -> dict[str, ColumnStatistics]:
    """Count NaN and infinite values in the columns whose least or greatest value shows that they exist.

    To Spark NaN is greater than every number, so a column without either needs no second look.
    """
    from pyspark.sql import functions as F

    unusual = [
        name
        for name, column in columns.items()
        if column.type in BROKEN_TYPES
        and any(value is not None and not math.isfinite(value) for value in (column.least, column.greatest))
    ]
    if not unusual:
        return dict(columns)
    wanted = []
    for name in unusual:
        column = quoted(name)
        wanted += [
            F.expr(f"count_if(isnan({column}))"),
            F.expr(f"count_if(abs({column}) = double('inf'))"),
            F.expr(f"double(min({finite(column)}))"),
            F.expr(f"double(max({finite(column)}))"),
        ]
    row = table.agg(*wanted).first()
    assert row is not None
    found = dict(columns)
    for position, name in enumerate(unusual):
        nan, infinite, least, greatest = row[4 * position : 4 * position + 4]
        found[name] = replace(
            columns[name],
            values=columns[name].values - nan,
            nan=nan,
            infinite=infinite,
            least=least,
            greatest=greatest,
            varies=least is not None and least != greatest,
        )
    return found
