"""Gives each row its label and, if asked for, its weight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.config.keys import DataConfig
from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.columns import LABEL, WEIGHT
from sparkgpu.prepare.roles import FLOAT32_MAX, is_number
from sparkgpu.prepare.target import Target
from sparkgpu.table import schema as names
from sparkgpu.table.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_label(table: DataFrame, config: DataConfig, target: Target) -> DataFrame:
    """The rows with a target, with their label and, if asked for, their weight."""
    from pyspark.sql import functions as F

    labelled = table.withColumn(LABEL, F.expr(target.sql))
    if target.rows_refused:
        labelled = labelled.where(F.col(LABEL).isNotNull())
    weight = F.lit(1.0)
    if config.weight:
        kind = dict(labelled.dtypes)[config.weight]
        if not is_number(kind) and kind not in ("boolean", "string"):
            raise DataError(
                f"data.weight {config.weight!r} is of type {kind}; a weight must be a number. "
                "Choose another column."
            )
        weight = F.col(quoted(config.weight)).cast("double")
        is_good = (weight >= 0) & (weight <= FLOAT32_MAX)  # in Spark, NaN is greater than every number
        row = labelled.agg(
            *(F.count(F.when(which, 1)) for which in (is_good, is_good & (weight > 0)))
        ).first()
        assert row is not None
        good, positive = row
        if good < target.rows:
            raise DataError(
                f"data.weight {config.weight!r}: {target.rows - good:,} rows have no number from 0 to "
                "3.4e38. Correct or remove them."
            )
        if not positive:
            raise DataError(
                f"data.weight {config.weight!r} is zero in all {good:,} rows. Choose another column."
            )
    if each := class_weights(config, target):
        weight = weight * F.element_at(F.array(*map(F.lit, each)), F.col(LABEL) + 1)
    elif not config.weight:
        return labelled
    return labelled.withColumn(WEIGHT, weight)


def class_weights(config: DataConfig, target: Target) -> tuple[float, ...]:
    """What the weight of each class's rows is multiplied by; empty where classes are left as they are."""
    if config.class_weights != "balanced" or not target.class_rows:
        return ()
    # scikit-learn's definition: rows / (classes * rows of the class); the weights then average to 1.
    return tuple(target.rows / (len(target.class_rows) * rows) for rows in target.class_rows)


def check_weights(folder: Path, schema: TableSchema) -> None:
    """Refuse a table in `folder` with a split, or a fold, in which no row counts: it could not be scored."""
    import numpy as np
    import pyarrow.parquet as pq

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
