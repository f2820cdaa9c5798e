"""The weights of rows: those of the user's column, and those that balance classes.

N rows of a batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.config.keys import DataConfig
from sparkgpu.core.errors import DataError
from sparkgpu.core.table import schema as names
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.prepare.column_types import is_number
from sparkgpu.prepare.column_values import as_float64, numbers
from sparkgpu.prepare.roles import FLOAT32_MAX
from sparkgpu.prepare.target import Target


def check_weight_type(config: DataConfig, kind: str) -> None:
    if not is_number(kind) and kind not in ("boolean", "string"):
        raise DataError(
            f"data.weight {config.weight!r} is of type {kind}; a weight must be a number. "
            "Choose another column."
        )


def weights_of(column: pa.Array) -> NDArray[np.float64]:
    """The weights (N,) in a column; NaN for what is no number from 0 to 3.4e38."""
    weight_N = as_float64(numbers(column))
    with np.errstate(invalid="ignore"):
        return np.where((weight_N >= 0) & (weight_N <= FLOAT32_MAX), weight_N, np.nan)


def check_counted_weights(config: DataConfig, target: Target, *, good: int, positive: int) -> None:
    """Refuse weights unless each row with a target has one, and some count."""
    if not config.weight:
        return
    if good < target.rows:
        raise DataError(
            f"data.weight {config.weight!r}: {target.rows - good:,} rows have no number from 0 to "
            "3.4e38. Correct or remove them."
        )
    if not positive:
        raise DataError(f"data.weight {config.weight!r} is zero in all {good:,} rows. Choose another column.")


def class_weights(config: DataConfig, target: Target) -> tuple[float, ...]:
    """What the weight of each class's rows is multiplied by; empty where classes are left as they are."""
    if config.class_weights != "balanced" or not target.class_rows:
        return ()
    # scikit-learn's definition: rows / (classes * rows of the class); the weights then average to 1.
    return tuple(target.rows / (len(target.class_rows) * rows) for rows in target.class_rows)


def training_weights(
    config: DataConfig, balance: tuple[float, ...], batch: pa.RecordBatch, class_N: NDArray[Any]
) -> NDArray[np.float64] | None:
    """The weight of each row (N,) of a batch, None where rows have none."""
    weight_N = weights_of(batch.column(config.weight)) if config.weight else None
    if not balance:
        return weight_N
    each_N: NDArray[np.float64] = np.asarray(balance)[class_N]
    return each_N if weight_N is None else weight_N * each_N


def check_weights(folder: Path, schema: TableSchema) -> None:
    """Refuse a table in `folder` with a split, or a fold, in which no row counts: it could not be scored."""
    for split in ("train", "valid", "test") if schema.weight is not None else ():
        folds = [names.FOLD] if schema.folds is not None and split == "train" else []
        columns = [names.WEIGHT, *folds]
        files = sorted((folder / f"{names.SPLIT}={split}").glob("*.parquet"))
        parts = [pq.ParquetFile(file).read(columns=columns) for file in files]
        if not parts:
            continue  # with folds there need be no validation rows
        weight_N, *fold_N = (
            np.concatenate([part[column].to_numpy() for part in parts]) for column in columns
        )
        wholes = {f"split {split}": weight_N}
        if fold_N:
            wholes |= {f"fold {fold}": weight_N[fold_N[0] == fold] for fold in range(schema.folds or 0)}
        for name, weight_N in wholes.items():
            if len(weight_N) and not (weight_N > 0).any():
                raise DataError(
                    f"data.weight {schema.weight!r} is zero in all {len(weight_N):,} rows of {name}, so "
                    "nothing there would count. Choose another column, or another split."
                )
