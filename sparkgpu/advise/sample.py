"""A part of the user's table as a file of its own, and the number of rows of the whole, without Spark.

One row at random of every few rows is taken, so that a sorted table gives rows of all its parts. Of a very
large table only some row groups, or only the first rows, are read. Text formats are copied as text, since
Spark must guess the same types from the sample as from the whole. Limits: a line end inside a quoted value
counts as a row, and tables that only Spark can read are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq

from sparkgpu.config.keys import RunConfig
from sparkgpu.config.registry.formats import FORMATS
from sparkgpu.errors import DataError
from sparkgpu.plan.tree_defaults import TableSize
from sparkgpu.predict.readers.reading import Reader, refusing_unreadable
from sparkgpu.prepare.file_columns import files_of, open_parquet
from sparkgpu.prepare.roles import ColumnStatistics, check_columns, infer_task
from sparkgpu.table.schema import Task
from sparkgpu.table.source import Source

_MOST_BYTES = 500_000_000
"""Files of more bytes are not read to their end."""
_BLOCK = 1 << 24
_ROWS_OF_CLASS = 5
_LOOK_ROWS = 1_000
_FLAG_VALUES = 2


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Some rows of a table in `file`; `whole_rows` are those of the table, `is_exact` tells if counted.

    `size` is what the whole table's preparation is expected to find: all columns but the target as features,
    of which `num_words` are texts and `num_flags` numbers with at most two values.
    """

    file: Path
    rows: int
    whole_rows: int
    is_exact: bool
    size: TableSize
    num_words: int
    num_flags: int


def take_sample(source: Source, config: RunConfig, most_rows: int, folder: Path) -> Sample:
    """Write at most `most_rows` rows of a local table to a file in `folder`.

    Rows of classes that are too rare to be split are left out. Raises `DataError` if the table is not on this
    machine, cannot be read, or has no such target.
    """
    whole, is_exact, table = rows_of(source, most_rows)
    names = dict.fromkeys(table.column_names, "string")
    target = check_columns(names, target=config.data.target, roles={}, others=())
    size, table = _measured(table, target, config)
    kinds = Counter(_kind(table[name]) for name in table.column_names if name != target)
    whole = max(whole, table.num_rows)
    return Sample(
        file=_written(table, source, folder),
        rows=table.num_rows,
        whole_rows=whole,
        is_exact=is_exact,
        size=replace(size, train_rows=max(1, round(whole * (1 - config.split.valid - config.split.test)))),
        num_words=kinds["word"],
        num_flags=kinds["flag"],
    )


def rows_of(source: Source, most: int) -> tuple[int, bool, pa.Table]:
    """The rows of a local table, whether they were counted exactly, and at most `most` of them.

    Raises `DataError` if it is not on this machine, cannot be read, or has no rows.
    """
    read = _reader(source)
    with refusing_unreadable(source):
        whole, is_exact = count_rows(source)
        table = _spread(read, source, whole, most) if whole else pa.table({})
    if table.num_rows == 0:
        raise DataError(f"{source.name}: the table has no rows. Give a table with rows.")
    return whole, is_exact, table


def count_rows(source: Source) -> tuple[int, bool]:
    """The rows of a local table, and whether the count is exact; text files are counted by their lines."""
    if source.format == "parquet":
        return sum(pq.read_metadata(file).num_rows for file in files_of(source)), True
    if source.format == "orc":
        return sum(pyarrow.orc.ORCFile(file).nrows for file in files_of(source)), True
    lines = 0
    files = [file for file in files_of(source) if file.stat().st_size]
    for file in files:
        with pa.input_stream(str(file), compression="detect") as stream:
            last = b"\n"
            while block := stream.read(_BLOCK):
                lines += block.count(b"\n")
                last = block
            lines += not last.endswith(b"\n")
    return max(0, lines - (len(files) if source.format == "csv" else 0)), False


def _reader(source: Source) -> Reader:
    place = FORMATS.find(source.format).read if source.format is not None else None
    if place is None or source.is_far:
        what = "a table of Spark's catalog" if source.is_catalog_table else "not in files of this machine"
        raise DataError(
            f"{source.name}: it is {what}, and advice needs some of its rows. Write a part of it to a "
            "Parquet file here, and ask about that."
        )
    reader: Reader = FORMATS.find(source.format or "").loaded_from(place)
    return reader


def _is_small(source: Source) -> bool:
    return sum(file.stat().st_size for file in files_of(source)) <= _MOST_BYTES


def _spread(read: Reader, source: Source, whole: int, most: int) -> pa.Table:
    if source.format == "parquet" and not _is_small(source):
        batches = _some_groups(source, most)
        whole = 4 * most
    elif _is_small(source):
        batches = read(source, None)
    else:
        batches = _first(read(source, None), 4 * most)
        whole = min(whole, 4 * most)
    step = max(1, -(-whole // most))
    blocks = np.arange(0, max(whole, 1), step)
    wanted_M = blocks + np.random.default_rng(7).integers(0, step, len(blocks))
    kept: list[pa.RecordBatch] = []
    passed = 0
    for batch in batches:
        own = slice(*np.searchsorted(wanted_M, (passed, passed + batch.num_rows)))
        if len(wanted_M[own]):
            kept.append(batch if step == 1 else batch.take(pa.array(wanted_M[own] - passed)))
        passed += batch.num_rows
    if not kept:
        return pa.table({})
    return pa.Table.from_batches([batch.cast(kept[0].schema) for batch in kept]).slice(0, most)


def _some_groups(source: Source, most: int) -> Iterator[pa.RecordBatch]:
    """Batches of row groups at equal distances, with about four times `most` rows."""
    groups = [
        (file, index, pq.read_metadata(file).row_group(index).num_rows)
        for file in files_of(source)
        for index in range(pq.read_metadata(file).num_row_groups)
    ]
    rows = sum(count for _, _, count in groups)
    wanted = max(1, round(len(groups) * 4 * most / max(rows, 1)))
    for place in np.linspace(0, len(groups) - 1, min(wanted, len(groups))).round().astype(int):
        file, index, _ = groups[place]
        with open_parquet(file) as opened:
            yield from opened.iter_batches(row_groups=[index])


def _first(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    passed = 0
    for batch in batches:
        yield batch
        passed += batch.num_rows
        if passed >= rows:
            return


def _written(table: pa.Table, source: Source, folder: Path) -> Path:
    """The rows in a file that Spark reads as it reads the source."""
    if source.format == "csv":
        file = folder / "sample.csv"
        pyarrow.csv.write_csv(table, file)
    elif source.format == "json":
        file = folder / "sample.jsonl"
        with file.open("w", encoding="utf-8") as out:
            for row in table.to_pylist():
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
    else:
        file = folder / "sample.parquet"
        pq.write_table(table, file)
    return file


def task_of(column: pa.Array, name: str, asked: str) -> tuple[Task, dict[Any, int]]:
    """The task that a target of these values gives, and the rows of each value (of each class).

    As the preparation of a run decides it (`sparkgpu.prepare.roles.infer_task`). Raises `DataError` if
    nothing can be learned.
    """
    counts = {item["values"]: item["counts"] for item in pc.value_counts(column.drop_null()).to_pylist()}
    number, whole = _as_number(column)
    statistics = ColumnStatistics(
        name=name, type="double" if number else "string", rows=len(column),
        values=len(column) - column.null_count, whole=whole,
    )  # fmt: skip
    if infer_task(statistics, len(counts), asked) == "regression":
        return "regression", counts
    return "binary" if len(counts) == 2 else "multiclass", counts


def _measured(table: pa.Table, target: str, config: RunConfig) -> tuple[TableSize, pa.Table]:
    """The size of these rows, and those of them whose class has enough rows for every split."""
    column = table[target].combine_chunks()
    task, counts = task_of(column, target, config.data.task)
    if task == "regression":
        return _size(task, table, 0), table
    kept = [value for value, rows in counts.items() if rows >= _ROWS_OF_CLASS]
    if 2 <= len(kept) < len(counts):
        table = table.filter(pc.is_in(column, value_set=pa.array(kept, column.type)))
    return _size(task, table, len(counts)), table


def _size(task: Task, table: pa.Table, num_classes: int) -> TableSize:
    return TableSize(
        task=task, train_rows=table.num_rows, num_features=table.num_columns - 1, num_classes=num_classes
    )


def _kind(column: pa.ChunkedArray) -> str:
    """How much of memory a column takes: a word, a flag or a number."""
    if _as_number(column.combine_chunks().slice(0, _LOOK_ROWS))[0]:
        return "flag" if len(column.unique()) <= _FLAG_VALUES else "number"
    return "flag" if pa.types.is_boolean(column.type) else "word"


def _as_number(column: pa.Array) -> tuple[bool, bool]:
    """Whether the values are numbers, also if written as text, and whether they are whole ones."""
    if pa.types.is_boolean(column.type):
        return False, False
    try:
        values = column.cast(pa.string()).cast(pa.float64())
    except (pa.ArrowException, NotImplementedError):
        return False, False
    finite = values.filter(pc.is_finite(values))
    return True, bool(pc.all(pc.equal(finite, pc.floor(finite))).as_py())
