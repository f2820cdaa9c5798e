"""Numbers in place of very many levels: the mean target of the training rows of each level, smoothed.

A column with more than `data.max_categories` levels loses the rarer ones to one level. For users or items
that is most rows, and the levels hold what can be known, so such a column also gets its levels' mean targets
as numeric features: one, or one per class if there are more than two. Where most rows keep their level, the
means made both models worse (benchmarks/results/2026-11-trees.md).

No row sees its own label. A training row gets the mean of the level's rows in the other tenths of the
training rows (in the other folds, if there are folds); all other rows get the mean of all training rows.
The counts lie beside the table, and whoever makes rows looks the means up (`sparkgpu.prepare.level_means`).

P parts, V values per level, N rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import Feature
from sparkgpu.prepare.column_values import as_texts
from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.hashes import places_of
from sparkgpu.prepare.levels import Levels
from sparkgpu.prepare.roles import safe_names
from sparkgpu.prepare.split import TRAIN, SplitRule

_PARTS = 10
_FEWEST_ROWS = 2
_MOST_LEVELS = 2_000_000
_MOST_CLASSES = 20
_MEAN, _SHARE = "mean target", "share of "


def with_means(
    features: Sequence[Feature], levels: Mapping[str, Levels], classes: Sequence[str]
) -> tuple[Feature, ...]:
    """The features with those of mean targets behind them, for the columns that lose most rows' levels."""
    capped = [feature for feature in features if feature.levels and levels[feature.source].loses_most]
    if not capped or len(classes) > _MOST_CLASSES:
        return tuple(features)
    targets = [f"{_SHARE}{name}" for name in classes] if len(classes) > 2 else [_MEAN]
    made = [(feature, place, target) for feature in capped for place, target in enumerate(targets)]
    names = safe_names(
        [
            *(feature.name for feature in features),
            *(f"{feature.name} {target}" for feature, _, target in made),
        ]
    )
    return (
        *features,
        *(
            Feature(
                name=name,
                source=feature.source,
                part=target,
                kind="numeric",
                pipeline=f"{feature.pipeline}_mean{place}",
                means_of=feature.name,
            )
            for name, (feature, place, target) in zip(names[len(features) :], made, strict=True)
        ),
    )


@dataclass(kw_only=True)
class MeanCounts:
    """By feature: a table of level, part, rows and the sums of the label's values."""

    counted: dict[str, pa.Table] = field(default_factory=dict)

    def add(self, name: str, table: pa.Table) -> None:
        known = [self.counted[name], table] if name in self.counted else [table]
        values = [column for column in table.column_names if column not in ("level", "part")]
        summed = (
            pa.concat_tables(known).group_by(["level", "part"]).aggregate([(name, "sum") for name in values])
        )
        self.counted[name] = summed.rename_columns({f"{value}_sum": value for value in values})

    def merge(self, other: MeanCounts) -> None:
        for name, table in other.counted.items():
            self.add(name, table)


@dataclass(frozen=True, kw_only=True)
class LookAtMeans:
    """The fourth pass over a table, if it has such columns: called with batches, it returns `MeanCounts`.

    `features` are those whose levels get means.
    """

    rule: SplitRule
    features: tuple[Feature, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.rule.columns, *(feature.source for feature in self.features)]))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> MeanCounts:
        found = MeanCounts()
        classes = self.rule.target.classes
        for batch in batches:
            part_N = training_parts(self.rule, batch)
            is_train_N = part_N >= 0
            label_N = self.rule.target.labels(batch.column(self.rule.target.column))[is_train_N]
            values = (
                [(label_N == code).astype(np.float64) for code in range(len(classes))]
                if len(classes) > 2
                else [label_N.astype(np.float64)]
            )
            for feature in self.features:
                level = as_texts(batch.column(feature.source), feature.type or "string")
                columns = {
                    "level": level.filter(pa.array(is_train_N)),
                    "part": part_N[is_train_N],
                    "rows": np.ones(len(label_N), dtype=np.int64),
                    **{f"v{place}": value_N for place, value_N in enumerate(values)},
                }
                found.add(feature.name, pa.table(columns))
        return found


def training_parts(rule: SplitRule, batch: pa.RecordBatch) -> NDArray[np.int64]:
    """The part of each row (N,): its fold or a tenth drawn from its id; -1 outside the training rows."""
    assigned = rule.assigned(batch)
    if assigned.fold_N is not None:
        part_N = assigned.fold_N.astype(np.int64)
    else:
        seed = (rule.seed + 1) % 2**31  # other tenths than those of the split
        part_N = np.floor(places_of(seed, as_numpy(batch.column(ROW_ID))) * _PARTS).astype(np.int64)
    return np.where(assigned.split_N == TRAIN, part_N, -1)


def write_means(file: Path, counted: pa.Table) -> None:
    """Without the levels that tell nothing, and with at most `_MOST_LEVELS`, the most frequent first."""
    total = counted.group_by("level").aggregate([("rows", "sum")])
    kept = total.filter(pc.greater_equal(total["rows_sum"], _FEWEST_ROWS)).sort_by(
        [("rows_sum", "descending"), ("level", "ascending")]
    )
    is_kept = pc.is_in(counted["level"], value_set=kept["level"].combine_chunks()[:_MOST_LEVELS])
    # The rest counts only for the overall mean, as rows without a level.
    level = pc.if_else(is_kept, counted["level"], pa.scalar(None, pa.string()))
    found = MeanCounts()
    found.add("", counted.set_column(counted.schema.get_field_index("level"), "level", level))
    file.parent.mkdir(parents=True, exist_ok=True)
    # In one order, so that equal tables give equal sums, whatever the tasks that counted.
    pq.write_table(found.counted[""].sort_by([("level", "ascending"), ("part", "ascending")]), file)
