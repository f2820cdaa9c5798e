"""The figures of `sparkgpu.prepare.statistics` for Parquet on this machine, by pyarrow while Spark starts.

A JVM that has just started takes several seconds for what pyarrow does in a fraction of one. Where pyarrow
and Spark may read a column differently (or files disagree on its type), nothing is returned and Spark
gathers the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkgpu.config.keys import Role
from sparkgpu.prepare.file_columns import file_columns, files_of, open_parquet
from sparkgpu.prepare.moments import varying_parts
from sparkgpu.prepare.parquet_rows import BATCH_ROWS
from sparkgpu.prepare.parquet_texts import Extremes, TextFigures, broken
from sparkgpu.prepare.roles import FLOAT32_MAX, MANY_CLASSES, WHOLE_TYPES, ColumnStatistics, is_number
from sparkgpu.prepare.texts import text_statistics
from sparkgpu.table.source import Source

_MOST_VALUES = 200_000_000  # some 5 s; Spark uses all cores, and beyond that its start no longer counts
_TIME_KINDS = ("date", "timestamp", "timestamp_ntz")


@dataclass(kw_only=True)
class _Figures:
    """What was found of one column so far; extremes are of the numbers that 32 bits hold."""

    type: pa.DataType
    values: int = 0
    nan: int = 0
    infinite: int = 0
    too_large: int = 0
    broken: int = 0
    extremes: Extremes = field(default_factory=Extremes)
    texts: TextFigures = field(default_factory=TextFigures)
    counts: Counter[Any] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class ParquetScan:
    """All columns of a table, and its rows."""

    rows: int
    target: str | None
    columns: Mapping[str, _Figures]


def scan_parquet(source: Source, target: str | None) -> ParquetScan | None:
    """Read all of a local Parquet table once, in batches; None where that is left to Spark.

    More is asked of the column `target` than of the others.
    """
    path = Path(source.location)
    if source.format != "parquet" or not path.exists():
        return None
    files = files_of(source)
    found = file_columns(source)
    if found is None or any(len(kinds) > 1 for kinds in found.kinds.values()):
        return None
    columns = {name: _Figures(type=kind) for name, (kind,) in found.kinds.items()}
    try:
        values = len(columns) * sum(pq.read_metadata(file).num_rows for file in files)
        plain = all(file.parent in (path, path.parent) for file in files)  # no column is in a folder's name
        if not plain or values > _MOST_VALUES:
            return None
        rows = 0
        for file in files:
            with open_parquet(file) as opened:
                for batch in opened.iter_batches(BATCH_ROWS):
                    rows += batch.num_rows
                    for name, column in zip(batch.schema.names, batch.columns, strict=True):
                        _add(columns[name], column, is_target=name == target)
    except (OSError, pa.ArrowException):  # Spark says what is wrong with it, or reads it after all
        return None
    return ParquetScan(rows=rows, target=target, columns=columns)


def _add(figures: _Figures, column: pa.Array, *, is_target: bool) -> None:
    """Count a batch of a column in."""
    values = column.drop_null()
    figures.values += len(values)
    kind = figures.type
    if is_target and len(figures.counts) <= MANY_CLASSES:
        for found in pc.value_counts(values)[: MANY_CLASSES + 1].to_pylist():
            figures.counts[found["values"]] += found["counts"]  # to Python 0.0 and -0.0 are one
    if pa.types.is_floating(kind):
        is_finite = pc.is_finite(values)
        if not pc.all(is_finite).as_py():
            figures.nan += pc.sum(pc.is_nan(values)).as_py() or 0
            figures.infinite += pc.sum(pc.is_inf(values)).as_py() or 0
            values = values.filter(is_finite)
        if is_target:
            figures.broken += pc.sum(broken(values)).as_py() or 0
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        figures.extremes.widen_moments(_microseconds(values))
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        figures.extremes.widen("", pc.min_max(values))
    elif pa.types.is_floating(kind):
        _add_finite(figures, values)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        figures.texts.add(values, is_target=is_target)


def _add_finite(figures: _Figures, numbers: pa.Array) -> None:
    found = pc.min_max(numbers)
    if any(end is not None and abs(end) > FLOAT32_MAX for end in found.as_py().values()):
        fits = pc.less_equal(pc.abs(numbers), FLOAT32_MAX)
        figures.too_large += pc.sum(pc.invert(fits)).as_py() or 0
        found = pc.min_max(numbers.filter(fits))
    figures.extremes.widen("", found)


def _microseconds(values: pa.Array) -> pa.Array:
    """Moments in UTC without a zone; finer ones are cut towards 1970, as `open_source` lets Spark do."""
    zone = values.type.tz if pa.types.is_timestamp(values.type) else None
    return values.cast(pa.timestamp("us", zone), safe=False).view(pa.int64()).view(pa.timestamp("us"))


def from_scan(
    scan: ParquetScan, types: Mapping[str, str], roles: Mapping[str, Role]
) -> dict[str, ColumnStatistics] | None:
    """The columns' figures under the `types` that Spark gives them; None where a type is not one of these."""
    if list(types) != list(scan.columns):
        return None
    if any(role == "timestamp" and types[name] not in _TIME_KINDS for name, role in roles.items()):
        return None
    found: dict[str, ColumnStatistics] = {}
    for name, kind in types.items():
        figures = scan.columns[name]
        if not any(of(kind) and fits(figures.type) for of, fits in _READ_ALIKE):
            return None
        found[name] = _statistics(name, kind, figures, scan, roles.get(name))
    return found


def _statistics(
    name: str, kind: str, figures: _Figures, scan: ParquetScan, role: Role | None
) -> ColumnStatistics:
    is_target = name == scan.target
    if kind == "string":
        found = text_statistics(
            name, rows=scan.rows, values=figures.values, found=figures.texts.found(), asked=role, typed=True
        )
        # Spark spells numbers in its own way.
        return replace(found, counts=dict(figures.counts)) if is_target and not found.numeric else found
    least, greatest = figures.extremes.get("least"), figures.extremes.get("greatest")
    unusual = figures.nan + figures.infinite + figures.too_large
    number = is_number(kind) and least is not None
    if kind == "boolean" or unusual:
        varies = least is not None and least != greatest
    else:
        varies = not number or least != greatest
    return ColumnStatistics(
        name=name,
        type=kind,
        rows=scan.rows,
        values=figures.values - figures.nan,
        varies=varies,
        nan=figures.nan,
        infinite=figures.infinite,
        too_large=figures.too_large,
        least=float(least) if number and least is not None else None,
        greatest=float(greatest) if number and greatest is not None else None,
        whole=kind in WHOLE_TYPES or (is_target and is_number(kind) and figures.broken + unusual == 0),
        counts=_spelled(figures.counts, kind) if is_target else None,
        parts=varying_parts(figures.extremes.moment_figures()) if kind in _TIME_KINDS else (),
    )


def _spelled(counts: Counter[Any], kind: str) -> dict[str, int] | None:
    """Rows by value as Spark spells it; None of a type that it may spell otherwise."""
    if kind == "boolean":
        return {str(value).lower(): rows for value, rows in counts.items()}
    if is_number(kind) and all(float(value).is_integer() and abs(value) < 2**53 for value in counts):
        return {str(int(value)): rows for value, rows in counts.items()}
    return None


def _any_of(*tests: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(test(kind) for test in tests)


# Spark's types of a column, and Arrow's of the same column, of which both read the same values.
_READ_ALIKE: Iterable[tuple[Callable[[str], bool], Callable[[pa.DataType], bool]]] = (
    (lambda kind: kind in WHOLE_TYPES, pa.types.is_integer),
    (lambda kind: kind == "float", pa.types.is_float32),
    (lambda kind: kind == "double", pa.types.is_float64),
    (lambda kind: kind == "boolean", pa.types.is_boolean),
    (lambda kind: kind == "string", _any_of(pa.types.is_string, pa.types.is_large_string)),
    (lambda kind: kind == "date", pa.types.is_date),
    (lambda kind: kind in ("timestamp", "timestamp_ntz"), pa.types.is_timestamp),
)
