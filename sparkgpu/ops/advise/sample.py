"""A part of the user's table as a file of its own, and the number of rows of the whole, without Spark.

One row at random of every few rows is taken, so that a sorted table gives rows of all its parts. Of a very
large table only some row groups, or only the first rows, are read. CSV is copied as text, since the types
must be guessed from the sample as from the whole. Limits: a line end inside a quoted value counts as a row,
and tables that only Spark can read are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.table.schema import Task
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.predict.readers import Reader, reader_of, refusing_unreadable
from sparkgpu.prepare.column_values import labels_of
from sparkgpu.prepare.decisions import checked_target
from sparkgpu.prepare.file_columns import files_of, open_parquet
from sparkgpu.prepare.kernel import Look, merged
from sparkgpu.prepare.local_rows import LocalRows
from sparkgpu.prepare.roles import ColumnStatistics, infer_task
from sparkgpu.prepare.text import no_rows
from sparkgpu.prepare.to_parquet import to_parquet

_MOST_BYTES = 500_000_000
"""Files of more bytes are not read to their end."""
_BLOCK = 1 << 24
_ROWS_OF_CLASS = 5


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Some rows of a table in `file`; `whole_rows` are those of the table, `is_exact` tells if counted.

    `size` is what the whole table's preparation is expected to find: all columns but the target as features,
    of which `num_words` are texts and `num_flags` are booleans or whole numbers with at most two values.
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
    read = reader_of(source, "Write a part of it to a Parquet file here, and ask about that.")
    with refusing_unreadable(source):
        whole, is_exact = count_rows(source)
        table = _spread(read, source, whole, most_rows) if whole else pa.table({})
    if table.num_rows == 0:
        raise no_rows(source.name)
    file = _written(table, source, folder)
    target, found = _looked(file, source.name, config)
    counts = found[target].counts or {}
    task: Task = "regression"
    if infer_task(found[target], len(counts), config.data.task) == "classes":
        task = "binary" if len(counts) == 2 else "multiclass"
        kept = [level for level, rows in counts.items() if rows >= _ROWS_OF_CLASS]
        if 2 <= len(kept) < len(counts):
            code_N = labels_of(table[target].combine_chunks(), kept, found[target].type)
            table = table.filter(pa.array(code_N >= 0))
            file = _written(table, source, folder)
    whole = max(whole, table.num_rows)
    kinds = Counter(_kind(column) for name, column in found.items() if name != target)
    size = TableSize(
        task=task,
        train_rows=max(1, round(whole * (1 - config.split.valid - config.split.test))),
        num_features=len(found) - 1,
        num_classes=0 if task == "regression" else len(counts),
    )
    return Sample(
        file=file, rows=table.num_rows, whole_rows=whole, is_exact=is_exact, size=size,
        num_words=kinds["word"], num_flags=kinds["flag"],
    )  # fmt: skip


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


def _spread(read: Reader, source: Source, whole: int, most: int) -> pa.Table:
    """One row at random of each of at most `most` blocks of equal length."""
    rows, batches = whole, None
    if sum(file.stat().st_size for file in files_of(source)) > _MOST_BYTES:
        rows = min(whole, 4 * most)
        batches = _some_groups(source, rows) if source.format == "parquet" else None
    step = -(-rows // most)
    blocks = np.arange(0, rows, step)
    wanted_M = blocks + np.random.default_rng(7).integers(0, step, len(blocks))
    kept: list[pa.RecordBatch] = []
    passed = 0
    for batch in batches or read(source, None):
        own = wanted_M[slice(*np.searchsorted(wanted_M, (passed, passed + batch.num_rows)))]
        if len(own):
            kept.append(batch if step == 1 else batch.take(pa.array(own - passed)))
        passed += batch.num_rows
        if passed >= rows:
            break
    if not kept:
        return pa.table({})
    return pa.Table.from_batches([batch.cast(kept[0].schema) for batch in kept]).slice(0, most)


def _some_groups(source: Source, rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of row groups at equal distances, with about so many rows."""
    groups = [
        (file, index, metadata.row_group(index).num_rows)
        for file in files_of(source)
        for metadata in [pq.read_metadata(file)]
        for index in range(metadata.num_row_groups)
    ]
    wanted = max(1, round(len(groups) * rows / max(1, sum(count for *_, count in groups))))
    for place in np.linspace(0, len(groups) - 1, min(wanted, len(groups))).round().astype(int):
        file, index, _ = groups[place]
        with open_parquet(file) as opened:
            yield from opened.iter_batches(row_groups=[index])


def _written(table: pa.Table, source: Source, folder: Path) -> Path:
    """The rows in a file that gives the columns the types that the source does."""
    file = folder / ("sample.csv" if source.format == "csv" else "sample.parquet")
    if source.format == "csv":
        pyarrow.csv.write_csv(table, file)
    else:
        pq.write_table(table, file)
    return file


def _looked(file: Path, name: str, config: RunConfig) -> tuple[str, Mapping[str, ColumnStatistics]]:
    """The target, and what a run's preparation finds out about each column of the sample."""
    source = find_source(str(file)).model_copy(update={"name": name})
    rows = LocalRows(to_parquet(source, file.parent))
    target = checked_target(name, rows.types, config)
    found = rows.map(Look(schema=rows.schema, target=target, roles=config.data.roles), list(rows.types))
    return target, merged(found).statistics(rows.types)


def _kind(column: ColumnStatistics) -> str:
    """How much of memory a column takes: a word, a flag or a number."""
    if column.family == "text":
        return "word" if column.held in ("text", "codes") else "number"
    is_small = column.least is not None and column.greatest is not None
    is_small = is_small and column.whole and (column.greatest or 0) - (column.least or 0) <= 1
    return "flag" if column.family == "boolean" or is_small else "number"
