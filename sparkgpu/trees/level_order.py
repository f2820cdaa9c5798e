"""Orders the levels of categories by the label of their training rows, so that one cut parts them well.

The optimal split of a category into two groups is a cut in this order, for two classes and for squared error
(Fisher 1958; Breiman et al. 1984, section 4.2). With more classes the levels are ordered along the first
principal component of their class shares (Coppersmith, Hong and Hosking 1999).

The mean label of a level with few rows is mostly chance, and trees would learn these rows by heart. So all
levels with fewer than ten rows stand together, where their common mean is, ordered by their texts.

A category with a feature of mean targets (`sparkgpu.prepare.target_means`) keeps the order of its codes, the
most frequent first: the place of a level would tell trees the labels that this feature keeps from its rows.

H2O's own encoding of that name also orders the validation rows by their own labels, and early stopping then
sees other numbers than a prediction (tried with 3.46). Here only training rows count.

N rows, L levels, C classes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import FOLD, LABEL, Feature, TableSchema

_PRIOR_ROWS = 10.0  # so many rows with the mean label stand beside each level's own
_FEWEST_ROWS = 10  # levels with fewer stand together (benchmarks/results/2026-11-against-others.md)


def ordered_levels(folder: Path, schema: TableSchema, fold: int | None) -> dict[str, tuple[int, ...]]:
    """The level codes of each categorical feature in their order; levels without a row are left out.

    `folder` holds the Parquet files of the training split; rows of `fold` do not count. One column is in
    memory at a time.
    """
    import pyarrow.dataset as ds

    data = ds.dataset(sorted(folder.glob("*.parquet")))
    kept = None if fold is None else ds.field(FOLD) != fold
    found: dict[str, tuple[int, ...]] = {}
    for feature in schema.categorical:
        if feature.name in with_means(schema):
            found[feature.name] = tuple(range(len(feature.levels)))
            continue
        rows = data.to_table(columns=[feature.name, LABEL], filter=kept)
        sum_LC, count_L = _sums(feature, as_numpy(rows[feature.name]), as_numpy(rows[LABEL]), schema)
        found[feature.name] = _ordered(feature, sum_LC, count_L)
    return found


def with_means(schema: TableSchema) -> frozenset[str]:
    """The categories that have a feature of mean targets."""
    return frozenset(filter(None, (feature.means_of for feature in schema.features)))


def _sums(
    feature: Feature, code_N: NDArray[np.float32], label_N: NDArray[np.generic], schema: TableSchema
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each level, and last for missing values: the sum of its labels or its classes, and its rows."""
    size = len(feature.levels) + 1
    level_N = np.where(np.isnan(code_N), size - 1, code_N).astype(np.int64)
    if not schema.classes:
        sum_L = np.bincount(level_N, label_N.astype(np.float64), size)
        return sum_L[:, None].astype(np.float64), np.bincount(level_N, minlength=size).astype(np.float64)
    classes = len(schema.classes)
    cell_N = level_N * classes + label_N.astype(np.int64)
    sum_LC = np.bincount(cell_N, minlength=size * classes).astype(np.float64).reshape(size, classes)
    return sum_LC, np.asarray(sum_LC.sum(axis=1))


def _ordered(feature: Feature, sum_LC: NDArray[np.float64], count_L: NDArray[np.float64]) -> tuple[int, ...]:
    present_L = count_L > 0
    mean_C = sum_LC.sum(axis=0) / count_L.sum()
    is_rare_L = present_L & (count_L < _FEWEST_ROWS) & (np.arange(len(count_L)) < len(feature.levels))
    joint_LC = np.where(is_rare_L[:, None], sum_LC[is_rare_L].sum(axis=0), sum_LC)
    joint_L = np.where(is_rare_L, count_L[is_rare_L].sum(), count_L)
    share_LC = (joint_LC + _PRIOR_ROWS * mean_C) / (joint_L + _PRIOR_ROWS)[:, None]
    line_L = np.full(len(count_L), np.nan)
    line_L[present_L] = on_a_line(share_LC[present_L], count_L[present_L])
    codes = np.flatnonzero(present_L[:-1]).tolist()
    return tuple(sorted(codes, key=lambda code: (line_L[code], feature.levels[code])))


def on_a_line(share_LC: NDArray[np.float64], count_L: NDArray[np.float64]) -> NDArray[np.float64]:
    """A number for each level to order it by, from its mean label (L, 1) or its class shares (L, C)."""
    if share_LC.shape[1] <= 2:
        return share_LC[:, -1]
    weight_L = count_L / count_L.sum()
    centred_LC = share_LC - weight_L @ share_LC
    _, axes_CC = np.linalg.eigh(centred_LC.T @ (weight_L[:, None] * centred_LC))
    axis_C = axes_CC[:, -1]
    # Either direction is an eigenvector: the first class decides, so that the order is always the same.
    return np.asarray(centred_LC @ (axis_C * (np.sign(axis_C[np.argmax(np.abs(axis_C))]) or 1.0)))
