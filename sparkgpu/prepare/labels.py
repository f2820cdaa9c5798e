"""The weights of rows: those of the user's column, and those that balance classes.

N rows of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparkgpu.core.config.keys import DataConfig
from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.prepare.column_types import is_number
from sparkgpu.prepare.column_values import as_float64, numbers
from sparkgpu.prepare.roles import FLOAT32_MAX
from sparkgpu.prepare.target import Target


def check_weight_type(column: str, kind: str) -> None:
    if not is_number(kind) and kind not in ("boolean", "string"):
        raise DataError(
            f"data.weight {column!r} is of type {kind}; a weight must be a number. Choose another column."
        )


def weights_of(column: pa.Array) -> NDArray[np.float64]:
    """The weights (N,) in a column; NaN for what is no number from 0 to 3.4e38."""
    weight_N = as_float64(numbers(column))
    with np.errstate(invalid="ignore"):
        return np.where((weight_N >= 0) & (weight_N <= FLOAT32_MAX), weight_N, np.nan)


def check_counted_weights(column: str, rows: int, *, good: int, positive: int) -> None:
    """Refuse weights unless each of the `rows` with a target has one, and some count."""
    if good < rows:
        raise DataError(
            f"data.weight {column!r}: {rows - good:,} rows have no number from 0 to 3.4e38. "
            "Correct or remove them."
        )
    if not positive:
        raise DataError(f"data.weight {column!r} is zero in all {good:,} rows. Choose another column.")


def class_weights(config: DataConfig, target: Target) -> tuple[float, ...]:
    """What the weight of each class's rows is multiplied by; empty where classes are left as they are."""
    if config.class_weights != "balanced" or not target.class_rows:
        return ()
    # scikit-learn's definition: rows / (classes * rows of the class); the weights then average to 1.
    return tuple(target.rows / (len(target.class_rows) * rows) for rows in target.class_rows)


def training_weights(
    schema: TableSchema, batch: pa.RecordBatch, class_N: NDArray[Any]
) -> NDArray[np.float64] | None:
    """The weight of each row (N,) of a batch, None where rows have none."""
    weight_N = weights_of(batch.column(schema.weight)) if schema.weight else None
    if not schema.class_weights:
        return weight_N
    each_N: NDArray[np.float64] = np.asarray(schema.class_weights)[class_N]
    return each_N if weight_N is None else weight_N * each_N


def check_weights(paths: RunPaths, schema: TableSchema) -> None:
    """Refuse a table with a split, or a fold, in which no row counts: it could not be scored."""
    if schema.weight is None:
        return
    splits: tuple[SplitName, ...] = ("train", "valid", "test")
    parts: list[tuple[SplitName, int | None]] = [(name, None) for name in splits if schema.splits[name]]
    for split, fold in [*parts, *(("valid", fold) for fold in range(schema.folds or 0))]:
        weight_N = read_rows(paths, schema, split, fold=fold, features=False).weight_N
        assert weight_N is not None
        if not weight_N.any():
            where = f"split {split}" if fold is None else f"fold {fold}"
            raise DataError(
                f"data.weight {schema.weight!r} is zero in all {len(weight_N):,} rows of {where}, so nothing "
                "there would count. Choose another column, or another split."
            )
