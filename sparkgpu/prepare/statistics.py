"""One pass over the source that gathers the figures for `sparkgpu.prepare.roles`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkgpu.config.values import Role
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.columns import own_columns
from sparkgpu.prepare.moments import moment_figures, varying_parts
from sparkgpu.prepare.roles import (
    BROKEN_TYPES,
    FLOAT32_MAX,
    WHOLE_TYPES,
    ColumnStatistics,
    is_number,
)
from sparkgpu.prepare.texts import (
    finite,
    moments_in_text,
    numbers_in_text,
    sample_texts,
    text_as_moment,
    text_as_number,
    text_statistics,
    too_large,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, kw_only=True)
class TableStatistics:
    """Figures of the whole table. The fingerprint covers the rows' content in any order; None if still open.

    `replaced` counts texts that contain U+FFFD, by which Spark replaces bytes that are not UTF-8.
    `by_pyarrow` means that pyarrow gathered them, and so reads the table like Spark. `text_file` means that
    the table is CSV or JSON, where everything is text.
    """

    rows: int
    columns: Mapping[str, ColumnStatistics]
    fingerprint: str | None = None
    replaced: int = 0
    by_pyarrow: bool = False
    text_file: bool = False


def content_hash(table: DataFrame) -> Column:
    """A 64-bit hash of a row's content (columns sorted by name, so that their order does not matter)."""
    from pyspark.sql import functions as F

    types = dict(table.dtypes)
    hashable = [name for name in own_columns(types) if "map<" not in types[name]]
    return F.xxhash64(*(F.col(quoted(name)) for name in sorted(hashable)))


def gather(table: DataFrame, *, target: str, text_file: bool, roles: Mapping[str, Role]) -> TableStatistics:
    """Gather the figures for the roles over all rows, in one job of plain sums and extremes.

    The number of levels of a text column is left to the job that counts the levels
    (`sparkgpu.prepare.levels`): sketches of distinct counts take ten times as long as all the rest.
    `text_file` marks formats without types (CSV, JSON), where numbers with ``NA`` among them arrive as text.
    """
    from pyspark.sql import functions as F

    types = own_types(table)
    texts = sample_texts(table, [name for name, kind in types.items() if kind == "string"])
    wanted, read = _content(table), []
    for position, (name, kind) in enumerate(types.items()):
        column, is_target = quoted(name), name == target
        figures_of = _expressions(column, kind, roles.get(name), is_target)
        if kind == "string" and (text_file or "numbers" in texts[name]):
            number = f"__sparkgpu_number_{position}"
            read.append(f"{text_as_number(column)} AS {number}")
            figures_of |= numbers_in_text(column, number, typed=not text_file, is_target=is_target)
        if kind == "string" and "moments" in texts[name]:
            moment = f"__sparkgpu_moment_{position}"
            read.append(f"{text_as_moment(column)} AS {moment}")
            figures_of = moments_in_text(column, moment) | figures_of
        if kind == "string" and text_file:
            figures_of["replaced"] = f"count_if(contains({column}, '\ufffd'))"
        wanted += [F.expr(sql).alias(f"{position}:{key}") for key, sql in figures_of.items()]
    row = table.selectExpr("*", *read).agg(*wanted).first()
    assert row is not None
    found = row.asDict()
    figures: dict[int, dict[str, Any]] = {position: {} for position in range(len(types))}
    for key, value in found.items():
        position_text, mark, figure = key.partition(":")
        if mark:
            figures[int(position_text)][figure] = value
    columns = {
        name: _statistics(name, kind, found["rows"], figures[position], roles.get(name), typed=not text_file)
        for position, (name, kind) in enumerate(types.items())
    }
    return TableStatistics(
        rows=found["rows"],
        fingerprint=digest(types, found),
        replaced=sum(figure.get("replaced") or 0 for figure in figures.values()),
        columns=_count_unusual(table, columns),
        text_file=text_file,
    )


def own_types(table: DataFrame) -> dict[str, str]:
    """The user's columns and their types, in Spark's spelling."""
    own = set(own_columns(table.columns))
    return {name: kind for name, kind in table.dtypes if name in own}


def fingerprint(table: DataFrame) -> str:
    """The fingerprint of `TableStatistics`, in its own job."""
    row = table.agg(*_content(table)).first()
    assert row is not None
    return digest(own_types(table), row.asDict())


def _content(table: DataFrame) -> list[Column]:
    """The aggregates of a fingerprint."""
    from pyspark.sql import functions as F

    hashed = content_hash(table)
    return [
        F.count(F.lit(1)).alias("rows"),
        # Two equal rows cancel out in the first, not in the second (32 bits each, so it cannot overflow).
        F.bit_xor(hashed).alias("mixed"),
        F.sum(F.shiftright(hashed, 32)).alias("sum"),
    ]


def digest(types: Mapping[str, str], found: Mapping[str, Any]) -> str:
    content = (sorted(types.items()), found["rows"], found["mixed"], found["sum"])
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


def _expressions(column: str, kind: str, role: Role | None, is_target: bool) -> dict[str, str]:
    """The aggregates of one column in SQL, by the name of the figure, without those of numbers in texts."""
    found = {"values": f"count({column})"}
    if is_number(kind):
        found["least"], found["greatest"] = f"double(min({column}))", f"double(max({column}))"
        if is_target and kind not in WHOLE_TYPES:
            found["broken"] = f"count_if({column} <> floor({column}))"
    elif kind == "boolean":
        found["varies"] = f"min({column}) < max({column})"
    if kind in ("date", "timestamp", "timestamp_ntz") or role == "timestamp":
        found |= moment_figures(f"try_cast({column} AS timestamp)")
    return found


def _statistics(
    name: str, kind: str, rows: int, found: Mapping[str, Any], role: Role | None, *, typed: bool
) -> ColumnStatistics:
    if kind == "string":
        return text_statistics(name, rows=rows, values=found["values"], found=found, asked=role, typed=typed)
    least, greatest = found.get("least"), found.get("greatest")
    varies = least != greatest if least is not None else found.get("varies", True)
    return ColumnStatistics(
        name=name,
        type=kind,
        rows=rows,
        values=found["values"],
        varies=bool(varies),
        least=least,
        greatest=greatest,
        whole=kind in WHOLE_TYPES or found.get("broken") == 0,
        parts=varying_parts(found),
    )


def _count_unusual(table: DataFrame, columns: Mapping[str, ColumnStatistics]) -> dict[str, ColumnStatistics]:
    """Count NaN, infinite values and those beyond 32 bits, in columns whose extremes show that they exist.

    In Spark NaN is greater than every number, so the greatest value shows whether a column has any.
    """
    from pyspark.sql import functions as F

    unusual = [
        name
        for name, column in columns.items()
        if column.type in BROKEN_TYPES
        and any(
            value is not None and not abs(value) <= FLOAT32_MAX for value in (column.least, column.greatest)
        )
    ]
    if not unusual:
        return dict(columns)
    wanted = []
    for name in unusual:
        column = quoted(name)
        wanted += [
            F.expr(f"count_if(isnan({column}))"),
            F.expr(f"count_if(abs({column}) = double('inf'))"),
            F.expr(too_large(column)),
            F.expr(f"double(min({finite(column)}))"),
            F.expr(f"double(max({finite(column)}))"),
        ]
    row = table.agg(*wanted).first()
    assert row is not None
    found = dict(columns)
    for position, name in enumerate(unusual):
        nan, infinite, large, least, greatest = row[5 * position : 5 * position + 5]
        found[name] = replace(
            columns[name],
            values=columns[name].values - nan,
            nan=nan,
            infinite=infinite,
            too_large=large,
            least=least,
            greatest=greatest,
            varies=least is not None and least != greatest,
        )
    return found
