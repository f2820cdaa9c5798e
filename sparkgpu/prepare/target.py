"""Checks the target and encodes it: class codes in a fixed order, or finite numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted, text_literal
from sparkgpu.prepare.roles import MANY_CLASSES, ColumnStatistics, infer_task
from sparkgpu.prepare.texts import text_as_number
from sparkgpu.table.schema import Task
from sparkgpu.words import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target in its encoded form.

    `sql` computes the label (an int code or a double) from the source's columns, null for a row without one.
    `class_rows` counts the rows of each class, in code order.
    """

    column: str
    task: Task
    classes: tuple[str, ...]
    class_rows: tuple[int, ...]
    sql: str
    rows: int
    rows_refused: int


class RowsNeededError(Exception):
    """The target's values are not counted yet, and there is no table in which Spark could count them."""


def find_target(table: DataFrame | None, statistics: ColumnStatistics, asked: str) -> Target:
    """Decide how the target is learned. Raises `DataError` if it cannot be learned.

    Without a `table`, raises `RowsNeededError` if its values are not counted yet.
    """
    name = f"target {statistics.name!r}"
    if statistics.nan or statistics.infinite:
        raise DataError(
            f"{name} holds {statistics.nan:,} NaN and {statistics.infinite:,} infinite values among "
            f"{statistics.rows:,} rows. Correct those values, or set them to null to leave the rows out."
        )
    if statistics.too_large:
        raise DataError(
            f"{name} holds {statistics.too_large:,} values beyond 3.4e38, the end of 32-bit numbers, among "
            f"{statistics.rows:,} rows. Use another unit, or set them to null to leave those rows out."
        )
    column = quoted(statistics.name)
    value = text_as_number(column) if statistics.family == "text" and statistics.numeric else column
    text = f"cast({value} AS string)"
    if statistics.numeric and statistics.whole:
        text = f"cast(cast({value} AS bigint) AS string)"
    could_be_classes = asked in ("binary", "multiclass") or not statistics.numeric or statistics.whole
    counts = statistics.counts if could_be_classes else {}
    if counts is None:
        if table is None:
            raise RowsNeededError
        counts = _count_values(table, text)
    num_values = len(counts) if could_be_classes else MANY_CLASSES + 1
    if infer_task(statistics, num_values, asked) == "regression":
        return _number(value, statistics, num_values)
    if num_values > MANY_CLASSES:
        raise DataError(
            f"{name} has more than {MANY_CLASSES:,} classes. Name a column of classes, or use --task "
            "regression for a number."
        )
    # Numbers by size, texts by the alphabet: the order that a reader expects in a table of probabilities.
    order = sorted(counts, key=float) if statistics.numeric else sorted(counts)
    _check_classes(counts, order, asked, name)
    return Target(
        column=statistics.name,
        task="binary" if len(order) == 2 else "multiclass",
        classes=tuple(order),
        class_rows=tuple(counts[level] for level in order),
        sql=f"cast(array_position(array({', '.join(map(text_literal, order))}), {text}) - 1 AS int)",
        rows=sum(counts.values()),
        rows_refused=statistics.rows - sum(counts.values()),
    )


def _number(value: str, statistics: ColumnStatistics, num_values: int) -> Target:
    if num_values <= 1 or not statistics.varies:
        raise DataError(
            f"target {statistics.name!r} has one value in all {statistics.values:,} rows; there is nothing "
            "to learn. Choose another target."
        )
    return Target(
        column=statistics.name,
        task="regression",
        classes=(),
        class_rows=(),
        sql=f"cast({value} AS double)",
        rows=statistics.values,
        rows_refused=statistics.rows - statistics.values,
    )


def _count_values(table: DataFrame, text: str) -> dict[str, int]:
    """Rows of each value, for at most one value more than the limit of classes."""
    from pyspark.sql import functions as F

    values = table.select(F.expr(text).alias("value")).where("value IS NOT NULL")
    found = values.groupBy("value").count().limit(MANY_CLASSES + 1).collect()
    return dict(found)


def _check_classes(counts: Mapping[str, int], order: list[str], asked: str, name: str) -> None:
    if len(order) == 1:
        raise DataError(
            f"{name} has one class, {order[0]!r}, in all {counts[order[0]]:,} rows; there is nothing to "
            "learn. Choose another target."
        )
    if asked == "binary" and len(order) != 2:
        raise DataError(
            f"--task binary: {name} has {len(order)} classes ({listed(order)}). Use --task multiclass."
        )
    single = [level for level in order if counts[level] == 1]
    if single:
        raise DataError(
            f"{name}: {'class' if len(single) == 1 else 'classes'} {listed(map(repr, single))} "
            f"{'has only one row' if len(single) == 1 else 'have only one row each'}; a class needs two or "
            "more, for training and for the test. Merge or remove them."
        )
