"""Numbers beside many levels: the mean target of the training rows of each level, smoothed.

The labels of a level's own rows place it well where it has many rows. Where a column has very many levels,
each with few rows, that place is mostly the rows' own labels, which trees and embeddings then learn by heart
(benchmarks/results/2026-11-24-many-levels.md). So such a column also gets its levels' mean targets as numeric
features: one, or one per class if there are more than two.

No row sees its own label. A training row gets the mean of the level's rows in the other tenths of the
training rows (in the other folds, if there are folds; in the tenths before its own, in a split by time); all
other rows get the mean of all training rows. Rows count by their weights. The counts lie beside the table,
and whoever makes rows looks the means up. Imported for each prediction, so without pandas, which
`sparkgpu.prepare.split` loads.

So many rows with the overall mean stand beside a level's own as the labels' variance within levels is times
that between them (Buhlmann and Straub 1970): few where levels tell much, and where they tell nothing, so many
that all means are nearly equal.

P parts, V values of a label (one, or one per class), N rows, L levels, X rows of counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import Feature
from sparkgpu.prepare.column_values import as_texts
from sparkgpu.prepare.roles import safe_names
from sparkgpu.prepare.target import Target, weights_of

if TYPE_CHECKING:
    from sparkgpu.prepare.features import Levels
    from sparkgpu.prepare.split import SplitRule

FOLDER = "target_means"
"""Its folder in ``table/``, with one file for each column."""
_MANY_LEVELS = 200  # 100 was worse on one table, 300 on another (the same record)
_LEAST_PRIOR, _MOST_PRIOR, _EARLY_PRIOR = 0.1, 1e6, 10.0
_MOST_LEVELS = 2_000_000
_MOST_CLASSES = 20


def with_means(
    features: Sequence[Feature], levels: Mapping[str, Levels], targets: Sequence[Target], most: int
) -> tuple[Feature, ...]:
    """The features with those of mean targets behind them, for the columns with many levels.

    Many are more than 200, or more than the `most` that keep a code of their own. Of several `targets`, the
    means of each are features for all.
    """
    many = min(_MANY_LEVELS, most)
    wide = [feature for feature in features if feature.levels and levels[feature.source].num_levels > many]
    titles = [title for target in targets for title in _titles_of(target, alone=len(targets) == 1)]
    made = [(feature, place, title) for feature in wide for place, title in enumerate(titles)]
    wanted = [f"{feature.name} {title}" for feature, _, title in made]
    names = safe_names([*(feature.name for feature in features), *wanted])[len(features) :]
    new = (
        Feature(
            name=name,
            source=feature.source,
            part=title,
            kind="numeric",
            pipeline=f"{feature.pipeline}_mean{place}",
            means_of=feature.name,
        )
        for name, (feature, place, title) in zip(names, made, strict=True)
    )
    return (*features, *new)


def _titles_of(target: Target, *, alone: bool) -> list[str]:
    """The titles of a level's means of one target; none of one with too many classes."""
    classes, own = target.classes, "" if alone else f" ({target.column})"
    if len(classes) > _MOST_CLASSES:
        return []
    if len(classes) > 2:
        return [f"share of {name}{own}" for name in classes]
    return ["mean target" if alone else f"mean {target.column}"]


def whose_levels_have_means(features: Sequence[Feature]) -> tuple[Feature, ...]:
    """The features whose levels have means."""
    names = {feature.means_of for feature in features}
    return tuple(feature for feature in features if feature.name in names)


@dataclass(kw_only=True)
class MeanCounts:
    """By feature: a table of level, part, rows, the sums of weights, of the label's values and squares."""

    counted: dict[str, pa.Table] = field(default_factory=dict)

    def add(self, name: str, table: pa.Table) -> None:
        known = [self.counted[name], table] if name in self.counted else [table]
        self.counted[name] = _summed(pa.concat_tables(known))

    def merge(self, other: MeanCounts) -> None:
        for name, table in other.counted.items():
            self.add(name, table)


def _summed(table: pa.Table) -> pa.Table:
    values = [column for column in table.column_names if column not in ("level", "part")]
    summed = table.group_by(["level", "part"]).aggregate([(name, "sum") for name in values])
    return summed.rename_columns({f"{value}_sum": value for value in values})


def count_means(
    batches: Iterable[pa.RecordBatch], *, rule: SplitRule, features: Sequence[Feature], weight: str | None
) -> MeanCounts:
    """The fourth pass over a table, if there are `features` whose levels get means.

    The counts of the first target have the feature's name, those of others their place behind it.
    """
    found = MeanCounts()
    targets = [target for target in rule.target.each if len(target.classes) <= _MOST_CLASSES]
    for batch in batches:
        part_N = rule.parts(batch)
        row_weight_N = weights_of(batch.column(weight)) if weight else np.ones(batch.num_rows)
        for place, target in enumerate(targets):
            label_N, classes = target.labels(batch), target.classes
            counts_N = (part_N >= 0) & target.classes_of(label_N)[0]
            label_N, weight_N = label_N[counts_N], row_weight_N[counts_N]
            value_VN = [label_N == code for code in range(len(classes))] if len(classes) > 2 else [label_N]
            sums = {f"v{index}": weight_N * value_N for index, value_N in enumerate(value_VN)}
            for feature in features:
                level = as_texts(batch.column(feature.source), feature.type or "string")
                columns = {
                    "level": level.filter(pa.array(counts_N)),
                    "part": part_N[counts_N],
                    "rows": np.ones(len(label_N), dtype=np.int64),
                    "weight": weight_N,
                    "squares": weight_N * np.square(value_VN, dtype=np.float64).sum(axis=0),
                    **sums,
                }
                found.add(f"{feature.name}.{place}" if place else feature.name, pa.table(columns))
    return found


def write_means(table: Path, feature: str, counted: pa.Table) -> None:
    """Write to the folder of a table.

    At most `_MOST_LEVELS` are kept, the most frequent ones. The rest counts only for the overall mean, as
    rows without a level.
    """
    total = counted.group_by("level").aggregate([("rows", "sum")])
    kept = total.sort_by([("rows_sum", "descending"), ("level", "ascending")])
    is_kept = pc.is_in(counted["level"], value_set=kept["level"].combine_chunks()[:_MOST_LEVELS])
    level = pc.if_else(is_kept, counted["level"], pa.scalar(None, pa.string()))
    found = _summed(counted.set_column(counted.schema.get_field_index("level"), "level", level))
    (table / FOLDER).mkdir(parents=True, exist_ok=True)
    # In one order, so that equal tables give equal sums, whatever the tasks that counted.
    pq.write_table(found.sort_by([("level", "ascending"), ("part", "ascending")]), _file(table, feature))


def _file(table: Path, feature: str) -> Path:
    return table / FOLDER / f"{feature}.parquet"


class LevelMeans:
    """The means of the levels in a file, for the first of the features `made` of one that has the levels.

    If `past`, parts count from the latest on, and a training row gets the means of those after its own.
    """

    def __init__(self, file: Path, feature: Feature, made: Sequence[str], *, past: bool = False) -> None:
        self._feature = feature
        try:
            counted = pq.read_table(file)
        except (OSError, pa.ArrowException):
            raise ConfigError(
                f"{file}: it is damaged or gone. Copy the whole folder of the run again."
            ) from None
        is_early = "weight" not in counted.column_names  # of a run before 2026-11-25
        weight_X = as_numpy(counted["rows" if is_early else "weight"]).astype(np.float64)
        part_X = as_numpy(counted["part"])
        values = [name for name in counted.column_names if name.startswith("v")]
        value_XV = np.stack([as_numpy(counted[name]) for name in values], axis=1)
        self.made = made[: len(values)]
        self._prior_V = value_XV.sum(axis=0) / weight_X.sum()
        level_X = counted["level"].combine_chunks().dictionary_encode()
        self._levels = level_X.dictionary
        code_X = as_numpy(level_X.indices.fill_null(-1))
        known_X = code_X >= 0
        place_X = (code_X[known_X], part_X[known_X])
        shape = (len(self._levels) + 1, 1 + part_X.max())  # the last for unknown levels
        self._weight_LP = np.zeros(shape)
        np.add.at(self._weight_LP, place_X, weight_X[known_X])
        self._value_LPV = np.zeros((*shape, len(values)))
        np.add.at(self._value_LPV, place_X, value_XV[known_X])
        self._weight_L = self._weight_LP.sum(axis=1)
        self._value_LV = self._value_LPV.sum(axis=1)
        self._prior_weight = _EARLY_PRIOR
        if not is_early:
            row_weight = weight_X.sum() / as_numpy(counted["rows"]).sum()
            squares = as_numpy(counted["squares"])[known_X].sum() / row_weight
            rows_L, value_LV = self._weight_L[:-1] / row_weight, self._value_LV[:-1] / row_weight
            self._prior_weight = row_weight * _prior_rows(rows_L, value_LV, squares)
        if past:
            self._weight_LP = self._weight_LP.cumsum(axis=1)
            self._value_LPV = self._value_LPV.cumsum(axis=1)

    def columns(
        self, column_of: Mapping[str, pa.Array] | pa.RecordBatch, part_N: NDArray[np.int64]
    ) -> dict[str, NDArray[np.float32]]:
        """The new features of rows with these columns; `part_N` is -1 for a row outside the training rows."""
        return self._of(as_texts(column_of[self._feature.source], self._feature.type or "string"), part_N)

    def by_level(self) -> tuple[list[str], dict[str, list[float]]]:
        """The levels, and the values of each new feature: one for each level, the last for any other."""
        texts = pa.concat_arrays([self._levels, pa.nulls(1, self._levels.type)])
        found = self._of(texts, np.full(len(texts), -1))
        return self._levels.to_pylist(), {name: values.tolist() for name, values in found.items()}

    def _of(self, texts: pa.Array, part_N: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        code_N = as_numpy(pc.index_in(texts, value_set=self._levels).fill_null(-1))
        weight_N = self._weight_L[code_N]
        value_NV = self._value_LV[code_N]
        is_train_N = part_N >= 0
        own = (code_N[is_train_N], part_N[is_train_N])
        weight_N[is_train_N] -= self._weight_LP[own]
        value_NV[is_train_N] -= self._value_LPV[own]
        mean_NV = value_NV + self._prior_weight * self._prior_V
        mean_NV /= (weight_N + self._prior_weight)[:, None]
        return dict(zip(self.made, mean_NV.astype(np.float32).T, strict=True))


def _prior_rows(rows_L: NDArray[np.float64], value_LV: NDArray[np.float64], squares: float) -> float:
    """The labels' variance within levels by that between them, from each level's rows and sums of values."""
    has_rows_L = rows_L > 0
    rows_L, value_LV = rows_L[has_rows_L], value_LV[has_rows_L]
    rows, levels = rows_L.sum(), len(rows_L)
    if levels < 2 or rows <= levels:
        return _MOST_PRIOR
    mean_LV = value_LV / rows_L[:, None]
    own = (value_LV * mean_LV).sum()
    within = max(squares - own, 0.0) / (rows - levels)
    between = own - np.square(value_LV.sum(axis=0)).sum() / rows - (levels - 1) * within
    between /= rows - np.square(rows_L).sum() / rows
    return _MOST_PRIOR if within >= _MOST_PRIOR * between else max(float(within / between), _LEAST_PRIOR)


def load_means(table: Path, features: Sequence[Feature], *, past: bool = False) -> dict[str, LevelMeans]:
    """The means in the folder of a table, by the name of the feature that has the levels.

    Those of a further target have the name of their first feature.
    """
    found = {}
    for own in whose_levels_have_means(features):
        made, key, place = [one.name for one in features if one.means_of == own.name], own.name, 0
        while made:
            file = _file(table, f"{own.name}.{place}" if place else own.name)
            found[key] = means = LevelMeans(file, own, made, past=past)
            made = made[len(means.made) :]
            key, place = next(iter(made), ""), place + 1
    return found
