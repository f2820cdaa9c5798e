"""The learning curve of trees as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from sparkgpu.table.schema import TableSchema


def curve_as_csv(curve: Iterable[tuple[int, float, float]], schema: TableSchema) -> str:
    """Points of (number of trees, metric on train, metric on valid) as the text of ``learning_curve.csv``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "elapsed_s", "metric", "train", "valid"])
    metric = "log_loss" if schema.classes else "rmse"
    for step, train, valid in curve:
        writer.writerow([step, "", metric, train, valid])
    return text.getvalue()
