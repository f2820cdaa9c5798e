"""A part of the user's table as a file of its own, and a run on it: a run as any other, but short and silent.

One row at random of every few rows is taken, so that a sorted table gives rows of all its parts. Limit:
tables that Spark has to open are refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.config.keys import ClusterConfig, RunConfig
from sparkgpu.core.errors import DataError, TrialError
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import Task
from sparkgpu.core.table.source import Source
from sparkgpu.lanes.launch import outside_environment
from sparkgpu.prepare.column_values import labels_of
from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.decisions import checked_targets
from sparkgpu.prepare.kernel import look
from sparkgpu.prepare.local_rows import LocalRows, merged
from sparkgpu.prepare.roles import ColumnStatistics, infer_task
from sparkgpu.prepare.text import no_rows
from sparkgpu.prepare.to_parquet import to_parquet
from sparkgpu.present.terminal.display import Display
from sparkgpu.runs import run as orchestrate

_ROWS_OF_CLASS = 5


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Some rows of a table in `file`; `whole_rows` are those of the table.

    `size` is what the whole table's preparation is expected to find: all columns but the target as features,
    of which `num_words` are texts and `num_flags` are booleans or whole numbers with at most two values.
    """

    file: Path
    rows: int
    whole_rows: int
    size: TableSize
    num_words: int
    num_flags: int


def take_sample(source: Source, config: RunConfig, most_rows: int, folder: Path) -> Sample:
    """Write at most `most_rows` rows of a local table to a file in `folder`.

    Rows of classes that are too rare to be split are left out. Raises `DataError` if the table is not on this
    machine, cannot be read, or has no such target.
    """
    if source.is_opened_by_spark:
        raise DataError(
            f"{source.name}: Spark has to open it, and this needs some of its rows. Write a part of it to a "
            "Parquet file here, and ask about that."
        )
    whole = LocalRows(to_parquet(source, folder))
    if not whole.num_rows:
        raise no_rows(source.name)
    table = _spread(whole, most_rows)
    file = folder / "sample.parquet"
    pq.write_table(table, file)
    rows = LocalRows(source.model_copy(update={"location": str(file), "format": "parquet"}))
    (target,) = checked_targets(source.name, rows.types, config)
    work = partial(look, schema=rows.schema, targets=(target,), roles=config.data.roles)
    found = merged(rows.map(work, rows.types)).statistics(rows.types)
    counts = found[target].counts or {}
    task: Task = "regression"
    if infer_task(found[target], config.data.task) == "classes":
        task = "binary" if len(counts) == 2 else "multiclass"
        kept = [level for level, count in counts.items() if count >= _ROWS_OF_CLASS]
        if 2 <= len(kept) < len(counts):
            code_N = labels_of(table[target].combine_chunks(), kept, found[target].type)
            table = table.filter(pa.array(code_N >= 0))
            pq.write_table(table, file)
    size = TableSize(
        task=task,
        train_rows=max(1, round(whole.num_rows * (1 - config.split.valid - config.split.test))),
        num_features=len(found) - 1,
        num_classes=0 if task == "regression" else len(counts),
    )
    kinds = Counter(_kind(column) for name, column in found.items() if name != target)
    return Sample(
        file=file, rows=table.num_rows, whole_rows=whole.num_rows, size=size, num_words=kinds["word"],
        num_flags=kinds["flag"],
    )  # fmt: skip


def _spread(whole: LocalRows, most: int) -> pa.Table:
    """One row at random of each of at most `most` blocks of equal length."""
    step = -(-whole.num_rows // most)
    blocks = np.arange(0, whole.num_rows, step)
    wanted_M = blocks + np.random.default_rng(7).integers(0, step, len(blocks))

    def picked(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        found = []
        for batch in batches:
            first = batch.column(ROW_ID)[0].as_py()
            own = slice(*np.searchsorted(wanted_M, (first, first + batch.num_rows)))
            found.append(batch.drop_columns(ROW_ID).take(pa.array(wanted_M[own] - first)).cast(whole.schema))
        return found

    parts = whole.map(picked, whole.schema.names)
    return pa.Table.from_batches([batch for part in parts for batch in part], whole.schema)


def _kind(column: ColumnStatistics) -> str:
    """How much of memory a column takes: a word, a flag or a number."""
    if column.family == "text":
        return "word" if column.held in ("text", "codes") else "number"
    is_small = column.least is not None and column.greatest is not None
    is_small = is_small and column.whole and (column.greatest or 0) - (column.least or 0) <= 1
    return "flag" if column.family == "boolean" or is_small else "number"


def run_sample(sample: Sample, config: RunConfig, folder: Path, title: str) -> tuple[RunPaths, Results]:
    """A run of `config` on these rows, which shows nothing; `title` is its source in errors.

    Raises `TrialError` if a trial fails, and what else a run raises.
    """
    own = config.model_copy(
        update={
            "data": config.data.model_copy(update={"source": str(sample.file)}),
            "time_limit": None,
            "search": None,
            "cluster": ClusterConfig(),
            "report": config.report.model_copy(update={"level": "short"}),
        }
    )
    environ = outside_environment(os.environ)
    outcome = orchestrate.run(own, Display(StringIO()), out=folder, title=title, environ=environ)
    assert outcome.results is not None
    if failed := outcome.results.failed:
        raise TrialError(f"the small run that measures this machine failed: {failed[0].error}")
    return outcome.paths, outcome.results
