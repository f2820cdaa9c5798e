"""Gives each row its label and, if asked for, its weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkgpu.config.keys import DataConfig
from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.columns import LABEL, WEIGHT
from sparkgpu.prepare.roles import FLOAT32_MAX, is_number
from sparkgpu.prepare.target import Target

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
    if config.class_weights == "balanced" and target.class_rows:
        # scikit-learn's definition: rows / (classes * rows of the class); the weights then average to 1.
        each = [target.rows / (len(target.class_rows) * rows) for rows in target.class_rows]
        weight = weight * F.element_at(F.array(*map(F.lit, each)), F.col(LABEL) + 1)
    elif not config.weight:
        return labelled
    return labelled.withColumn(WEIGHT, weight)
