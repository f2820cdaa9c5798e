"""The levels of the categories in the training rows, and the features that follow from roles and levels.

Counting levels is the third pass over a table: a function of batches whose results can be merged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.schema import OTHER_LEVEL, DroppedColumn, Feature, Reading
from sparkgpu.prepare.column_values import as_texts
from sparkgpu.prepare.pairs import coordinates
from sparkgpu.prepare.roles import ColumnRole, is_prose, safe_names, text_reason
from sparkgpu.prepare.split import TRAIN, SplitRule
from sparkgpu.prepare.texts import ESTIMATE

_READINGS: Mapping[str, Reading] = {
    "numeric": "number",
    "boolean": "boolean",
    "categorical": "category",
    "timestamp": "timestamp",
}


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

    @property
    def words(self) -> float:
        """The mean number of words between blanks, of up to 1,000 of the levels."""
        some = self.levels[:1000]
        return sum(len(level.split()) for level in some) / max(len(some), 1)

    def with_other(self) -> tuple[str, ...]:
        return (*self.levels, OTHER_LEVEL) if self.num_levels > len(self.levels) else self.levels


@dataclass(kw_only=True)
class LevelCounts:
    """The training rows of each level of each column, and all training rows."""

    counts: dict[str, Counter[str]]
    rows: int = 0

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
            num_levels=len(count),
            kept=sum(kept.values()),
            values=count.total(),
            rows=self.rows,
        )


def count_levels(
    batches: Iterable[pa.RecordBatch], *, types: Mapping[str, str], rule: SplitRule | None = None
) -> LevelCounts:
    """Count the levels of the columns of these `types` in the training rows; all rows, without a rule."""
    found = LevelCounts(counts={column: Counter() for column in types})
    for batch in batches:
        own = batch.filter(pa.array(rule.assigned(batch).split_N == TRAIN)) if rule else batch
        found.rows += own.num_rows
        for column, kind in types.items():
            counted = pc.value_counts(as_texts(own.column(column), kind).drop_null())
            names, rows = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
            found.counts[column].update(dict(zip(names, rows, strict=True)))
    return found


def useful_roles(
    roles: Sequence[ColumnRole], levels: Mapping[str, Levels]
) -> tuple[list[ColumnRole], list[DroppedColumn]]:
    """The roles without the categories with nothing to learn, except those that the user asked for.

    Long texts that mostly differ are read word by word.
    """
    kept, dropped = [], []
    for role in roles:
        found = levels.get(role.column)
        reason = found and text_reason(found.num_levels, found.values, found.rows)
        if found and not role.asked and is_prose(found.num_levels, found.values, found.words):
            kept.append(replace(role, role="text"))
        elif found and reason and not (role.asked and found.values):
            dropped.append(DroppedColumn(column=role.column, reason=reason))
        else:
            kept.append(role)
    return kept, dropped


def features_of(
    roles: Sequence[ColumnRole],
    types: Mapping[str, str],
    levels: Mapping[str, Levels],
    as_they_are: Collection[str] = (),
) -> tuple[Feature, ...]:
    """The features of columns with these roles, in the order of the vector; `types` are Spark's.

    Behind them stand those of pairs of columns.

    VectorAssembler takes the columns `as_they_are` from the user's table. All others are numbered inside the
    pipeline, since dots and quotes in names break its stages.
    """
    same = Counter(map(str.casefold, types))  # Spark's names may ignore case
    taken = {name for name in as_they_are if re.fullmatch(r"\w+", name) and same[name.casefold()] == 1}
    prefix = "f"
    while any(re.fullmatch(rf"{prefix}\d+(_.*)?", name, re.IGNORECASE) for name in types):
        prefix = f"_{prefix}"
    parts = [
        (role, part)
        for role in roles
        for part in (role.parts if role.role in ("timestamp", "text") else (None,))
    ]
    pairs = coordinates([role.column for role in roles if role.role == "numeric"])
    names = safe_names(
        [
            *(f"{role.column}_{part}" if part else role.column for role, part in parts),
            *(f"{first}_{way}_{second}" for first, second in pairs for way in ("plus", "minus")),
        ]
    )
    own = [
        Feature(
            name=name,
            source=role.column,
            part=part,
            kind="categorical" if role.role == "categorical" else "numeric",
            pipeline=role.column if role.column in taken else f"{prefix}{place}",
            levels=levels[role.column].with_other() if role.role == "categorical" else (),
            reading=_READINGS.get(role.role) or ("estimate" if str(part).startswith(ESTIMATE) else "topic"),
            type=types[role.column],
        )
        for place, (name, (role, part)) in enumerate(zip(names[: len(parts)], parts, strict=True))
    ]
    name_of = {feature.source: feature.name for feature in own}
    ways: list[tuple[str, Reading]] = [("+", "sum"), ("−", "difference")]
    made = [
        Feature(
            name=names[place],
            source=first,
            part=f"{sign} {second}",
            kind="numeric",
            pipeline=f"{prefix}{place}",
            pair=(name_of[first], name_of[second]),
            reading=reading,
            type=types[first],
        )
        for place, ((first, second), (sign, reading)) in enumerate(product(pairs, ways), start=len(own))
    ]
    return (*own, *made)
