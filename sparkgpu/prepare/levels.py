"""The levels of the text columns in the training rows, counted by Spark or, for local files, by pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.parquet_rows import batches
from sparkgpu.prepare.roles import ColumnRole, ColumnStatistics, text_reason
from sparkgpu.table.schema import OTHER_LEVEL, DroppedColumn
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_COUNTED = 1_000_000  # Spark counts more than this, since it can use the disk


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The levels of a text column, the most frequent first (ties by name), and their total number.

    A level of the table that is spelled like `OTHER_LEVEL` joins the levels beyond the cap. `values` of the
    `rows` training rows are not null, and `kept` hold one of these levels.
    """

    levels: tuple[str, ...]
    num_levels: int
    kept: int
    values: int
    rows: int

    def with_other(self) -> tuple[str, ...]:
        return (*self.levels, OTHER_LEVEL) if self.num_levels > len(self.levels) else self.levels

    @property
    def loses_most(self) -> bool:
        """Whether most of the values belong to the levels beyond the cap.

        A table's own `OTHER_LEVEL` is no such level. A single level beyond the cap never holds most values.
        """
        return self.num_levels > len(self.levels) + 1 and self.kept < self.values / 2


def words(roles: Iterable[ColumnRole]) -> list[str]:
    """The columns that have levels."""
    return [role.column for role in roles if role.role == "categorical"]


def useless(
    roles: Iterable[ColumnRole], levels: Mapping[str, Levels], statistics: Mapping[str, ColumnStatistics]
) -> list[DroppedColumn]:
    """The text columns with nothing to learn, except those that the user asked for."""
    asked = {role.column for role in roles if role.asked}
    dropped = []
    for column, found in levels.items():
        reason = text_reason(found.num_levels, found.values, found.rows, held=statistics[column].held)
        if reason and (column not in asked or found.values == 0):
            dropped.append(DroppedColumn(column=column, reason=reason))
    return dropped


def count_levels(train: DataFrame, columns: Sequence[str], most: int) -> dict[str, Levels]:
    """The `most` most frequent levels of each column in the training rows, all counted in one job."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if not columns:
        return {}
    texts = [
        F.struct(F.lit(i).alias("i"), F.expr(as_text(quoted(c))).alias("level"))
        for i, c in enumerate(columns)
    ]
    counts = (
        train.select(F.explode(F.array(*texts)).alias("pair"))
        .groupBy("pair.i", "pair.level")
        .agg(F.count(F.lit(1)).alias("rows"))
    )
    own = Window.partitionBy("i")
    ranked = (
        counts.withColumn(
            "rank", F.row_number().over(own.orderBy(F.isnull("level"), F.desc("rows"), "level"))
        )
        .withColumn("num_levels", F.count("level").over(own))
        .withColumn("all_rows", F.sum("rows").over(own))
        .withColumn("values", F.sum(F.when(F.col("level").isNotNull(), F.col("rows")).otherwise(0)).over(own))
        .where(F.col("rank") <= most)
        .orderBy("i", "rank")
        .collect()
    )
    if not ranked:
        raise _no_rows()
    counted: dict[str, Levels] = {}
    for i, column in enumerate(columns):
        own_rows = [row for row in ranked if row["i"] == i]
        first = own_rows[0]
        kept = {row["level"]: row["rows"] for row in own_rows if row["level"] not in (None, OTHER_LEVEL)}
        counted[column] = Levels(
            levels=tuple(kept),
            kept=sum(kept.values()),
            num_levels=first["num_levels"],
            values=first["values"],
            rows=first["all_rows"],
        )
    return counted


def count_levels_of_parquet(
    source: Source, columns: Sequence[str], most: int, train_N: NDArray[np.bool_]
) -> dict[str, Levels] | None:
    """The same for the string columns of a local Parquet table, by pyarrow.

    `train_N` tells by row id which rows are training rows. Returns None if there are too many levels.
    """
    if not columns:
        return {}
    rows = int(train_N.sum())
    if not rows:
        raise _no_rows()
    counts: dict[str, Counter[str]] = {column: Counter() for column in columns}
    begin = 0
    for batch in batches(source, columns, as_dictionaries=True):
        train = pa.array(train_N[begin : begin + batch.num_rows])
        begin += batch.num_rows
        for column, count in counts.items():
            found = pc.value_counts(batch.column(column).filter(train).drop_null())
            names = found.field("values").dictionary_decode().to_pylist()
            count.update(dict(zip(names, found.field("counts").to_pylist(), strict=True)))
        if sum(map(len, counts.values())) > _MOST_COUNTED:
            return None
    return {column: _most_frequent(count, most, rows) for column, count in counts.items()}


def _most_frequent(count: Counter[str], most: int, rows: int) -> Levels:
    ordered = sorted(count, key=lambda level: (-count[level], level))
    kept = {level: count[level] for level in ordered[:most] if level != OTHER_LEVEL}
    return Levels(
        levels=tuple(kept),
        kept=sum(kept.values()),
        num_levels=len(count),
        values=count.total(),
        rows=rows,
    )


def as_text(column: str) -> str:
    """The SQL of a column's levels."""
    return f"cast({column} AS string)"


def _no_rows() -> DataError:
    return DataError("the split leaves no training rows. Give more rows, or other shares in [split].")
