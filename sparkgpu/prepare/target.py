"""Checks the target and encodes it: class codes in a fixed order, or finite numbers.

N rows of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.schema import Task
from sparkgpu.core.words import listed
from sparkgpu.prepare.column_values import labels_of
from sparkgpu.prepare.roles import MANY_CLASSES, ColumnStatistics, infer_task


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target in its encoded form.

    `type` is its type in Spark's spelling (``double`` for numbers written as text). `class_rows` counts the
    rows of each class, in code order.
    """

    column: str
    type: str
    task: Task
    classes: tuple[str, ...]
    class_rows: tuple[int, ...]
    rows: int
    rows_refused: int

    def labels(self, column: pa.Array) -> NDArray[Any]:
        """The labels (N,) of a batch: class codes, -1 for none, or values, NaN for none."""
        return labels_of(column, self.classes, self.type)

    def classes_of(self, label_N: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which rows (N,) have a label, and their classes; 0 for those without one, and without classes."""
        if not self.classes:
            return ~np.isnan(label_N), np.zeros(len(label_N), dtype=np.int64)
        return label_N >= 0, np.maximum(label_N, 0)

    @property
    def rows_by_class(self) -> Mapping[int, int]:
        """The rows of each class; of a regression all rows, as class 0."""
        return dict(enumerate(self.class_rows or (self.rows,)))


def find_target(statistics: ColumnStatistics, asked: str) -> Target:
    """Decide how the target is learned. Raises `DataError` if it cannot be learned."""
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
    could_be_classes = asked in ("binary", "multiclass") or not statistics.numeric or statistics.whole
    counts = (statistics.counts or {}) if could_be_classes else {}
    num_values = len(counts) if could_be_classes else MANY_CLASSES + 1
    kind = "double" if statistics.family == "text" and statistics.numeric else statistics.type
    if infer_task(statistics, num_values, asked) == "regression":
        return _number(kind, statistics, num_values)
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
        type=kind,
        task="binary" if len(order) == 2 else "multiclass",
        classes=tuple(order),
        class_rows=tuple(counts[level] for level in order),
        rows=sum(counts.values()),
        rows_refused=statistics.rows - sum(counts.values()),
    )


def _number(kind: str, statistics: ColumnStatistics, num_values: int) -> Target:
    if num_values <= 1 or not statistics.varies:
        raise DataError(
            f"target {statistics.name!r} has one value in all {statistics.values:,} rows; there is nothing "
            "to learn. Choose another target."
        )
    return Target(
        column=statistics.name,
        type=kind,
        task="regression",
        classes=(),
        class_rows=(),
        rows=statistics.values,
        rows_refused=statistics.rows - statistics.values,
    )


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
