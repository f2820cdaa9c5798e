"""The figures of `sparkgpu.prepare.statistics` for local Parquet files, by pyarrow while Spark starts.

A JVM that has just started takes several seconds for work that pyarrow does in a fraction of a second. If
pyarrow and Spark may read a column differently, or files disagree on its type, it returns nothing and Spark
gathers the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkgpu.config.values import Role
from sparkgpu.host.cores import usable_cores
from sparkgpu.prepare.file_columns import file_columns, files_of, open_parquet
from sparkgpu.prepare.moments import varying_parts
from sparkgpu.prepare.parquet_rows import BATCH_ROWS
from sparkgpu.prepare.parquet_texts import Extremes, TextFigures, broken
from sparkgpu.prepare.roles import FLOAT32_MAX, MANY_CLASSES, WHOLE_TYPES, ColumnStatistics, is_number
from sparkgpu.prepare.texts import text_statistics
from sparkgpu.table.source import Source

_COLUMNS_AT_ONCE = 8  # of one thread
_MOST_THREADS = 16
_TIME_KINDS = ("date", "timestamp", "timestamp_ntz")


@dataclass(kw_only=True)
class _Figures:
    """The figures of one column so far; extremes are those of the numbers that fit 32 bits."""

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
    """The figures of all columns of a table, and its number of rows; `was_text` is that of its source."""

    rows: int
    was_text: bool
    target: str | None
    columns: Mapping[str, _Figures]


def scan_parquet(source: Source, target: str | None) -> ParquetScan | None:
    """Read a whole local Parquet table once, in batches; None if that is left to Spark.

    It gathers more figures of the column `target` than of the others. Threads share the columns, so that each
    column is read in the order of its rows, whatever their number.
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
        plain = all(file.parent in (path, path.parent) for file in files)  # no folder name holds a column
        if not plain:
            return None
        metadata = [pq.read_metadata(file) for file in files]
        names = list(columns)
        parts = [names[at : at + _COLUMNS_AT_ONCE] for at in range(0, len(names), _COLUMNS_AT_ONCE)]
        with ThreadPoolExecutor(min(len(parts) or 1, usable_cores(), _MOST_THREADS)) as threads:
            read = [
                threads.submit(_read, list(zip(files, metadata, strict=True)), part, columns, target)
                for part in parts
            ]
            for waited in read:
                waited.result()
    except (OSError, pa.ArrowException):  # Spark reports the fault, or can read it
        return None
    rows = sum(found.num_rows for found in metadata)
    return ParquetScan(rows=rows, was_text=source.was_text, target=target, columns=columns)


def _read(
    files: Sequence[tuple[Path, pq.FileMetaData]],
    names: Sequence[str],
    columns: Mapping[str, _Figures],
    target: str | None,
) -> None:
    """Read some columns of all files into their figures."""
    for file, metadata in files:
        there = metadata.schema.to_arrow_schema().names
        own = [name for name in names if name in there]
        if not own:
            continue
        with open_parquet(file, metadata) as opened:
            for batch in opened.iter_batches(BATCH_ROWS, columns=own, use_threads=False):
                for name in own:  # asked for `a`, pyarrow also reads a column `a.b`
                    _add(columns[name], batch.column(name), is_target=name == target)


def _add(figures: _Figures, column: pa.Array, *, is_target: bool) -> None:
    """Add a batch of a column."""
    values = column.drop_null()
    figures.values += len(values)
    kind = figures.type
    if is_target and len(figures.counts) <= MANY_CLASSES:
        for found in pc.value_counts(values)[: MANY_CLASSES + 1].to_pylist():
            figures.counts[found["values"]] += found["counts"]  # in Python 0.0 and -0.0 are equal
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
    """Moments in UTC without a zone; finer ones are truncated towards 1970, as in `open_source`."""
    zone = values.type.tz if pa.types.is_timestamp(values.type) else None
    return values.cast(pa.timestamp("us", zone), safe=False).view(pa.int64()).view(pa.timestamp("us"))


def from_scan(
    scan: ParquetScan, types: Mapping[str, str], roles: Mapping[str, Role]
) -> dict[str, ColumnStatistics] | None:
    """The columns' figures with Spark's `types`; None if a column has another type."""
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
            name,
            rows=scan.rows,
            values=figures.values,
            found=figures.texts.found(),
            asked=role,
            typed=not scan.was_text,
        )
        # Spark has its own spelling of numbers.
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
    """Rows by value in Spark's spelling; None for a type with an uncertain spelling."""
    if kind == "boolean":
        return {str(value).lower(): rows for value, rows in counts.items()}
    if is_number(kind) and all(float(value).is_integer() and abs(value) < 2**53 for value in counts):
        return {str(int(value)): rows for value, rows in counts.items()}
    return None


def _any_of(*tests: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(test(kind) for test in tests)


# Types of Spark, and Arrow's types for the same column, for which both read the same values.
_READ_ALIKE: Iterable[tuple[Callable[[str], bool], Callable[[pa.DataType], bool]]] = (
    (lambda kind: kind in WHOLE_TYPES, pa.types.is_integer),
    (lambda kind: kind == "float", pa.types.is_float32),
    (lambda kind: kind == "double", pa.types.is_float64),
    (lambda kind: kind == "boolean", pa.types.is_boolean),
    (lambda kind: kind == "string", _any_of(pa.types.is_string, pa.types.is_large_string)),
    (lambda kind: kind == "date", pa.types.is_date),
    (lambda kind: kind in ("timestamp", "timestamp_ntz"), pa.types.is_timestamp),
)
