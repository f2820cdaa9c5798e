"""A prepared table from a frame in memory, without Spark: for the estimators of scikit-learn.

Columns are taken by their type alone. N rows.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import Feature, SplitName, TableSchema
from sparkgpu.core.table.writer import SplitFile, slots, table_rows
from sparkgpu.prepare.column_values import is_text
from sparkgpu.prepare.columns import spark_type
from sparkgpu.prepare.features import count_levels, features_of
from sparkgpu.prepare.roles import ColumnRole
from sparkgpu.prepare.timestamps import TIME_PARTS

_MOST_LEVELS = 1_000
_FEWEST_ROWS = 10
"""With fewer rows all of them train, and early stopping watches the same ones."""


def early_stop_split(label_N: NDArray[Any], has_classes: bool, valid_size: float, seed: int) -> NDArray[Any]:
    """``train`` or ``valid`` for each row (N,); each class has a training row.

    The engines also predict a test split, which is of no use here: it is one of the other rows.
    """
    rows = len(label_N)
    split_N = np.full(rows, "train", dtype="<U5")
    if rows < _FEWEST_ROWS:
        return split_N
    count_C = Counter(label_N.tolist()) if has_classes else {}
    several_N = np.array([not has_classes or count_C[label] > 1 for label in label_N.tolist()])
    place_M = np.flatnonzero(several_N)
    wanted = max(math.ceil(valid_size * len(place_M)), len(count_C), 1)
    if wanted >= len(place_M) - len(count_C):
        return split_N
    stratify = label_N[place_M] if has_classes else None
    _, valid_M = train_test_split(place_M, test_size=wanted, random_state=seed % 2**32, stratify=stratify)
    split_N[valid_M] = "valid"
    return split_N


def frame_features(table: pa.Table, is_train_N: NDArray[np.bool_]) -> tuple[Feature, ...]:
    """The features of a table's columns by their types alone; levels are those of the training rows."""
    roles = [_role(field) for field in table.schema]
    types = {field.name: spark_type(field.type) for field in table.schema}
    words = {role.column: types[role.column] for role in roles if role.role == "categorical"}
    train = table.select(list(words)).filter(pa.array(is_train_N)).to_batches()
    levels = count_levels(train, types=words).levels(_MOST_LEVELS) if words else {}
    return features_of(roles, types, levels)


def _role(field: pa.Field) -> ColumnRole:
    kind = field.type
    if pa.types.is_dictionary(kind) or is_text(kind):
        return ColumnRole(column=field.name, role="categorical")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return ColumnRole(column=field.name, role="timestamp", parts=tuple(TIME_PARTS))
    return ColumnRole(column=field.name, role="numeric")


def write_frame_table(
    paths: RunPaths,
    schema: TableSchema,
    rows: Rows,
    label_N: NDArray[Any],
    weight_N: NDArray[Any] | None,
    split_N: NDArray[Any],
) -> None:
    """The prepared table of a run, in which the engines find their rows."""
    code: Any = np.int32 if schema.classes else np.float64
    table = table_rows(
        schema.features, rows.row_id_N, label_N.astype(code), weight_N, None, slots(schema.features, rows)
    )
    is_valid_N = split_N == "valid" if (split_N == "valid").any() else split_N == "train"
    of_split: dict[SplitName, NDArray[np.bool_]] = {
        "train": split_N == "train", "valid": is_valid_N, "test": is_valid_N,
    }  # fmt: skip
    for name, which_N in of_split.items():
        file = SplitFile(paths.split(name), "part-00000.parquet")
        file.add(table.filter(pa.array(which_N)))
        file.close()
    write_json(paths.schema, schema)
