"""The levels of the categories in the training rows, and what is known of their targets.

The third pass over a table: a function of batches whose results can be merged.

N rows of a batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.schema import OTHER_LEVEL, DroppedColumn
from sparkgpu.prepare.column_values import as_texts
from sparkgpu.prepare.roles import ColumnRole, text_reason
from sparkgpu.prepare.split import TRAIN, SplitRule


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The levels of a category, the most frequent first (ties by name), and their total number.

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


@dataclass(kw_only=True)
class LevelCounts:
    """The training rows of each level of each column, and all training rows."""

    counts: dict[str, Counter[str]]
    rows: int = 0

    def add(self, batch: pa.RecordBatch, types: Mapping[str, str]) -> None:
        """Count the training rows of a batch; `types` are those of its columns."""
        self.rows += batch.num_rows
        for column, count in self.counts.items():
            counted = pc.value_counts(as_texts(batch.column(column), types[column]).drop_null())
            names, rows = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
            count.update(dict(zip(names, rows, strict=True)))

    def merge(self, other: LevelCounts) -> None:
        for column, count in other.counts.items():
            self.counts[column].update(count)
        self.rows += other.rows

    def levels(self, most: int) -> dict[str, Levels]:
        """The `most` most frequent levels of each column. Raises `DataError` without a training row."""
        if not self.rows:
            raise DataError("the split leaves no training rows. Give more rows, or other shares in [split].")
        return {column: self._most_frequent(count, most) for column, count in self.counts.items()}

    def _most_frequent(self, count: Counter[str], most: int) -> Levels:
        ordered = sorted(count, key=lambda level: (-count[level], level))
        kept = {level: count[level] for level in ordered[:most] if level != OTHER_LEVEL}
        return Levels(
            levels=tuple(kept),
            kept=sum(kept.values()),
            num_levels=len(count),
            values=count.total(),
            rows=self.rows,
        )


@dataclass(frozen=True, kw_only=True)
class LookAtLevels:
    """Called with the batches of some rows, it returns their `LevelCounts`; `types` are by column."""

    rule: SplitRule
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.rule.columns, *self.types]))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> LevelCounts:
        found = LevelCounts(counts={column: Counter() for column in self.types})
        for batch in batches:
            is_train_N = self.rule.assigned(batch).split_N == TRAIN
            found.add(batch.filter(pa.array(is_train_N)), self.types)
        return found


def categories(roles: Iterable[ColumnRole]) -> list[str]:
    """The columns that have levels."""
    return [role.column for role in roles if role.role == "categorical"]


def useless(roles: Sequence[ColumnRole], levels: Mapping[str, Levels]) -> list[DroppedColumn]:
    """The text columns with nothing to learn, except those that the user asked for."""
    asked = {role.column for role in roles if role.asked}
    dropped = []
    for column, found in levels.items():
        reason = text_reason(found.num_levels, found.values, found.rows)
        if reason and (column not in asked or found.values == 0):
            dropped.append(DroppedColumn(column=column, reason=reason))
    return dropped
