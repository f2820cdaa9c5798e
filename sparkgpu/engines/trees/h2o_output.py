"""What H2O tells about a model that it has grown: parameters, number of trees, scoring history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkgpu.rundir.curve import CurvePoint, curve_as_csv
from sparkgpu.table.schema import TableSchema


def native_parameters(output: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that the native library reports (name to value)."""
    found = output.get("native_parameters")
    return {str(row[-2]): str(row[-1]) for row in found.cell_values} if found is not None else {}


def num_trees(output: Mapping[str, Any]) -> int:
    """How many trees were grown: fewer than the native library was asked for after an early stop."""
    history = output["scoring_history"]
    return int(history.cell_values[-1][history.col_header.index("number_of_trees")])


def learning_curve(output: Mapping[str, Any], schema: TableSchema) -> tuple[int, str]:
    """The best number of trees on the validation rows, and the curve as CSV."""
    history = output["scoring_history"]
    names = history.col_header
    metric = "log_loss" if schema.classes else "rmse"
    points: list[CurvePoint] = []
    best, least = 0, float("inf")
    begin: float | None = None
    for row in history.cell_values:
        cells = dict(zip(names, row, strict=True))
        trees, valid = int(cells["number_of_trees"]), cells.get("validation_custom")
        elapsed = _seconds(str(cells["duration"]))
        begin = elapsed if begin is None else begin
        if trees == 0 or not isinstance(valid, float):
            continue
        train = cells.get("training_custom")
        points.append(
            CurvePoint(
                step=trees,
                elapsed_s=round(elapsed - begin, 3),
                train=train if isinstance(train, float) else None,
                valid=valid,
            )
        )
        if valid < least:
            best, least = trees, valid
    return best, curve_as_csv(metric, points)


def _seconds(duration: str) -> float:
    """Convert H2O's text of a duration ("1 min 2.345 sec") to seconds."""
    units = {"hour": 3600.0, "hours": 3600.0, "min": 60.0, "mins": 60.0, "sec": 1.0, "secs": 1.0}
    words = duration.split()
    return sum(
        float(number) * units.get(unit, 0.0) for number, unit in zip(words[::2], words[1::2], strict=False)
    )
