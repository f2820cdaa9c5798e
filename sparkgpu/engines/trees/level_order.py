"""Orders the levels of categories by the label of their training rows, so that one cut parts them well.

The optimal split of a category into two groups is a cut in this order, for two classes and for squared error
(Fisher 1958; Breiman et al. 1984, section 4.2). With more classes the levels are ordered along the first
principal component of their class shares (Coppersmith, Hong and Hosking 1999).

The mean label of a level with few rows is mostly chance, and trees would learn these rows by heart. So all
levels with fewer than ten rows stand together, at the place of their common mean, ordered by their names.

H2O's own encoding of that name also orders the validation rows by their own labels, and early stopping then
sees other numbers than a prediction (tried with 3.46). Here only training rows count.

L levels, C classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sparkgpu.table.schema import FOLD, LABEL, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

_PRIOR_ROWS = 10.0  # so many rows with the mean label stand beside each level's own
_FEWEST_ROWS = 10  # levels with fewer share one place (docs/performance.md, "Tables that chose nothing")


def ordered_levels(folder: Path, schema: TableSchema, fold: int | None) -> dict[str, tuple[str, ...]]:
    """The levels of each categorical feature in their order; levels without a row are left out.

    `folder` holds the Parquet files of the training split; rows of `fold` do not count. One column is in
    memory at a time.
    """
    import pyarrow.dataset as ds

    data = ds.dataset(sorted(folder.glob("*.parquet")))
    kept = None if fold is None else ds.field(FOLD) != fold
    return {
        feature.name: _ordered(data.to_table(columns=[feature.name, LABEL], filter=kept), schema)
        for feature in schema.categorical
    }


def _ordered(rows: pa.Table, schema: TableSchema) -> tuple[str, ...]:
    name = rows.column_names[0]
    counted = _class_counts if schema.classes else _label_sums
    levels, total_LC, count_L = counted(rows, name)
    mean_C = total_LC.sum(axis=0) / count_L.sum()
    known = [place for place, level in enumerate(levels) if level is not None]
    is_rare_L = (count_L < _FEWEST_ROWS) & np.array([level is not None for level in levels])
    joint_LC = np.where(is_rare_L[:, None], total_LC[is_rare_L].sum(axis=0), total_LC)
    joint_L = np.where(is_rare_L, count_L[is_rare_L].sum(), count_L)
    share_LC = (joint_LC + _PRIOR_ROWS * mean_C) / (joint_L + _PRIOR_ROWS)[:, None]
    place_L = order_of(share_LC, count_L)
    return tuple(levels[place] for place in sorted(known, key=lambda place: (place_L[place], levels[place])))


def order_of(share_LC: NDArray[np.float64], count_L: NDArray[np.float64]) -> NDArray[np.float64]:
    """The place of each level on a line, from its mean label (L, 1) or its class shares (L, C)."""
    if share_LC.shape[1] <= 2:
        return share_LC[:, -1]
    weight_L = count_L / count_L.sum()
    centred_LC = share_LC - weight_L @ share_LC
    _, axes_CC = np.linalg.eigh(centred_LC.T @ (weight_L[:, None] * centred_LC))
    axis_C = axes_CC[:, -1]
    # Either direction is an eigenvector: the first class decides, so that the order is always the same.
    return np.asarray(centred_LC @ (axis_C * (np.sign(axis_C[np.argmax(np.abs(axis_C))]) or 1.0)))


def _class_counts(rows: pa.Table, name: str) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    found = rows.group_by([name, LABEL], use_threads=False).aggregate([([], "count_all")])
    levels = list(dict.fromkeys(found[name].to_pylist()))
    place = {level: number for number, level in enumerate(levels)}
    codes = found[LABEL].to_numpy().astype(int)
    total_LC = np.zeros((len(levels), int(codes.max()) + 1))
    total_LC[[place[level] for level in found[name].to_pylist()], codes] = found["count_all"].to_numpy()
    return levels, total_LC, total_LC.sum(axis=1)


def _label_sums(rows: pa.Table, name: str) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    found = rows.group_by(name, use_threads=False).aggregate([(LABEL, "sum"), ([], "count_all")])
    total_L = found[f"{LABEL}_sum"].to_numpy().astype(np.float64)
    return found[name].to_pylist(), total_L[:, None], found["count_all"].to_numpy().astype(np.float64)
