"""The rows that a Spark session holds: its tasks run a function over their parts (`mapInArrow`).

The other executor of the same functions is `sparkgpu.prepare.local_rows`.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from sparkgpu.core.table.schema import SplitName
from sparkgpu.prepare.columns import ROW_ID, own_columns, quoted
from sparkgpu.prepare.local_rows import LocalRows, Work
from sparkgpu.prepare.row_id import numbered_by_footers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ResultT = TypeVar("ResultT")

LEADING_ZEROS = "leading zeros"
"""Marks a column of whole numbers, in the metadata of its field, of which some are written so."""

_LEAST_BYTES_OF_A_TASK = 2 * 2**20
_BYTES_OF_OPENING = 2**16  # Spark's own 4 MiB is also the least that a task reads
_MOST_TASKS = 64


def open_local(session: SparkSession, rows: LocalRows) -> DataFrame:
    """A local Parquet table as a DataFrame with the row id, read with the types that pyarrow found.

    Timestamps in nanoseconds, which Spark does not have, become microseconds, durations seconds.
    """
    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    # By the table alone, not by the cores: the parts of the prepared table follow from those of the source. A
    # task without a row group would still compile its code, seconds of work with thousands of columns.
    tasks = sum(file.stat().st_size for file in rows.files) // _LEAST_BYTES_OF_A_TASK
    tasks = max(1, min(tasks, rows.num_groups, _MOST_TASKS))
    session.conf.set("spark.sql.files.minPartitionNum", str(tasks))
    session.conf.set("spark.sql.files.openCostInBytes", str(_BYTES_OF_OPENING))
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in rows.spark_types.items())
    files = (literal(str(file)) for file in rows.files)
    table = session.read.schema(columns).parquet(*files)
    return with_values(numbered_by_footers(table, rows.files), rows.stored)


def with_values(table: DataFrame, stored: Mapping[str, tuple[str, str]]) -> DataFrame:
    """The table with the values of columns that Spark reads as whole numbers, by their SQL."""
    own = {name: quoted(name) for name in table.columns}
    return table.selectExpr(
        *(
            f"{stored[name][1].format(column)} AS {column}" if name in stored else column
            for name, column in own.items()
        )
    )


def mapped(table: DataFrame, function: Work[Iterator[pa.RecordBatch]], schema: StructType | str) -> DataFrame:
    """`mapInArrow` for columns of any name; pyspark 3.5 would take a dot in a name for a field."""
    names = table.columns
    plain = table.toDF(*(f"c{place}" for place in range(len(names))))
    return plain.mapInArrow(
        lambda batches: function(batch.rename_columns(names) for batch in batches), schema
    )


def results_of_tasks(table: DataFrame, work: Work[ResultT], *, width: int) -> list[ResultT]:
    """What `work` makes of the rows of each task, in their order; a row has `width` values."""
    # A batch stays below some 64 MB in the JVM and here.
    rows = max(256, min(65_536, 8_000_000 // max(1, width)))
    table.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        found = {"part": [context.partitionId()], "result": [pickle.dumps(work(iter(batches)))]}
        yield pa.RecordBatch.from_pydict(found, pa.schema({"part": pa.int32(), "result": pa.binary()}))

    found = mapped(table, run, "part int, result binary").collect()
    return [pickle.loads(row["result"]) for row in sorted(found, key=lambda row: row["part"])]


def literal(location: str) -> str:
    """A path without wildcards: Spark would read the brackets in ``sales[1].csv`` as a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", location) if Path(location).exists() else location


class SparkRows:
    """The rows of a DataFrame with the user's columns and the row id; for `starts` see `LocalRows`."""

    notes: Sequence[str] = ()

    def __init__(
        self,
        table: DataFrame,
        starts: Mapping[SplitName, int] | None = None,
        states: Mapping[Path, tuple[int, ...] | None] | None = None,
    ) -> None:
        self.table = table
        self.states = states or {}
        self.starts = starts or {}
        own = own_columns(table.columns)
        self.types = {name: kind for name, kind in table.dtypes if name in own}
        self.schema = pa.schema([(name, _arrow_type(table, name)) for name in own])
        self.padded = tuple(field.name for field in table.schema if field.metadata.get(LEADING_ZEROS))

    def map(self, work: Work[ResultT], columns: Iterable[str]) -> list[ResultT]:
        """What `work` makes of the rows of each task, in the order of the tasks."""
        read = [self._readable(name) for name in dict.fromkeys(columns)]
        return results_of_tasks(self.table.selectExpr(quoted(ROW_ID), *read), work, width=len(read))

    def _readable(self, name: str) -> str:
        """The SQL of a column; Arrow has no type for some, which hold no single value."""
        kind = self.types[name]
        if kind == "void" or kind.startswith(("interval", "map<")):
            return f"cast({quoted(name)} AS string) AS {quoted(name)}"
        return quoted(name)


def _arrow_type(table: DataFrame, name: str) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType

    kind = table.schema[name].dataType
    try:
        return to_arrow_type(kind)
    except TypeError:
        return to_arrow_type(StringType())
