"""The learning curve of trees as a file."""

from __future__ import annotations

from collections.abc import Iterable

from sparkgpu.core.rundir import curve as files
from sparkgpu.core.table.schema import TableSchema


def curve_as_csv(curve: Iterable[tuple[int, float, float]], schema: TableSchema) -> str:
    """Points of (number of trees, metric on train, metric on valid) as the text of ``learning_curve.csv``."""
    points = (
        files.CurvePoint(step=step, elapsed_s=None, train=train, valid=valid) for step, train, valid in curve
    )
    return files.curve_as_csv("log_loss" if schema.classes else "rmse", points)
