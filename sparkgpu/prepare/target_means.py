"""Numbers in place of very many levels: the mean target of the training rows of each level, smoothed.

A column with more than `data.max_categories` levels loses the rarer ones to one level. For users or items
that is most rows, and the levels hold what can be known, so such a column also gets its levels' mean targets
as numeric features: one, or one per class if there are more than two. Where most rows keep their level, the
means made both models worse (docs/performance.md).

No row sees its own label. A training row gets the mean of the level's rows in the other tenths of the
training rows (in the other folds, if there are folds); all other rows get the mean of all training rows.
Spark counts once; the means lie beside the table, and the tasks that write it look them up.

L levels, P parts, V values per level, N rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.prepare.columns import FOLD, LABEL, ROW_ID, SPLIT
from sparkgpu.prepare.level_means import FOLDER, ColumnMeans
from sparkgpu.prepare.levels import Levels
from sparkgpu.prepare.places import place, places_of
from sparkgpu.prepare.roles import safe_names
from sparkgpu.table import schema
from sparkgpu.table.rows import as_numpy
from sparkgpu.table.schema import Feature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    made = [(feature, words) for feature in capped for words in targets]
    names = safe_names(
        [*(feature.name for feature in features), *(f"{feature.name} {words}" for feature, words in made)]
    )
    return (
        *features,
        *(
            Feature(
                name=name,
                source=feature.source,
                part=words,
                kind="numeric",
                pipeline=feature.pipeline,
                means_of=feature.name,
            )
            for name, (feature, words) in zip(names[len(features) :], made, strict=True)
        ),
    )


def fit_means(
    typed: DataFrame, features: Sequence[Feature], classes: Sequence[str], folder: Path, *, seed: int
) -> list[ColumnMeans]:
    """Count the levels' labels in the training rows of `typed` and write them to `folder`.

    `typed` holds the pipeline's columns beside split, row id, label and, if there are folds, the fold.
    """
    from pyspark.sql import functions as F

    pipeline = {feature.name: feature.pipeline for feature in features}
    new: dict[str, list[str]] = {}
    for feature in features:
        if feature.means_of is not None:
            new.setdefault(feature.means_of, []).append(feature.name)
    if not new:
        return []
    seed = (seed + 1) % 2**31  # other tenths than those of the split
    folded = FOLD in typed.columns
    part = F.col(FOLD) if folded else F.floor(place(seed, F.col(ROW_ID)) * _PARTS).cast("int")
    values = (
        [(F.col(LABEL) == code).cast("double") for code in range(len(classes))]
        if len(classes) > 2
        else [F.col(LABEL).cast("double")]
    )
    train = typed.where(F.col(SPLIT) == "train")
    parts = 1 + train.agg(F.max(part)).collect()[0][0] if folded else _PARTS
    found = []
    for column, names in new.items():
        counted = train.groupBy(F.col(pipeline[column]).alias("level"), part.alias("part")).agg(
            F.count(F.lit(1)).alias("rows"), *(F.sum(value).alias(f"v{i}") for i, value in enumerate(values))
        )
        file = folder / FOLDER / f"{column}.parquet"
        counting = file.with_suffix(".counting")
        counted.write.parquet(str(counting))
        _write(pq.read_table(counting), file)
        shutil.rmtree(counting)
        found.append(
            ColumnMeans(
                column=column, features=tuple(names), file=str(file), parts=parts,
                seed=-1 if folded else seed,
            )
        )  # fmt: skip
    return found


def parts_of(means: ColumnMeans, rows: pa.Table, is_train_N: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The part of each row of a table to be written, -1 outside the training rows."""
    if means.seed < 0:
        part_N = as_numpy(rows[schema.FOLD]).astype(np.int64)
    else:
        place_N = places_of(means.seed, as_numpy(rows[schema.ROW_ID]).astype(np.int64))
        part_N = np.floor(place_N * means.parts).astype(np.int64)
    return np.where(is_train_N, part_N, -1)


def _write(counted: pa.Table, file: Path) -> None:
    """Without the levels that tell nothing, and with at most `_MOST_LEVELS`, the most frequent first."""
    total = counted.group_by("level").aggregate([("rows", "sum")])
    kept = total.filter(pc.greater_equal(total["rows_sum"], _FEWEST_ROWS)).sort_by(
        [("rows_sum", "descending")]
    )
    is_kept = pc.is_in(counted["level"], value_set=kept["level"].combine_chunks()[:_MOST_LEVELS])
    # The rest counts only for the overall mean, as rows without a level.
    level = pc.if_else(is_kept, counted["level"], pa.scalar(None, pa.string()))
    place = counted.schema.get_field_index("level")
    merged = counted.set_column(place, "level", level).group_by(["level", "part"])
    values = [name for name in counted.column_names if name not in ("level", "part")]
    summed = merged.aggregate([(name, "sum") for name in values])
    pq.write_table(summed.rename_columns({f"{name}_sum": name for name in values}), file)
