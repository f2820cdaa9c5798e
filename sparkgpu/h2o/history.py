"""What H2O tells about a model: its losses while it grows, and then its parameters and its curve."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import h2o
import pandas as pd
from h2o.estimators import H2OXGBoostEstimator
from h2o.exceptions import H2OError

from sparkgpu.core.rundir.curve import CurvePoint
from sparkgpu.trials.engine import TreesTrial

_ASK_EVERY_S = 1.5
_ASK_TO_SHOW_EVERY_S = 3.0  # each question is work for the node that trains


class WatchedHistory:
    """Tells a search the loss at each point of the scoring history, in order; `newest` is the last one.

    What the search decides depends only on the history, so it is told all of it again after the last tree: a
    setting is given up whether or not H2O was asked in time.
    """

    def __init__(self, model: H2OXGBoostEstimator, trial: TreesTrial, unit: float) -> None:
        self._model = model
        self._unit = unit
        self._watch = trial.watch
        self._told = 0
        self.newest: float | None = None
        self._asked = time.monotonic()

    def look(self) -> None:
        """Ask H2O for the history so far, every few seconds. Raises `PrunedError`."""
        every_s = _ASK_EVERY_S if self._watch is not None else _ASK_TO_SHOW_EVERY_S
        if time.monotonic() - self._asked < every_s:
            return
        self._asked = time.monotonic()
        with suppress(H2OError, OSError, LookupError, TypeError):
            found = h2o.api(f"GET /3/Models/{self._model.model_id}")["models"][0]["output"]
            self.tell(learning_curve(found, self._unit))

    def tell(self, points: list[CurvePoint]) -> None:
        """Tell the points that were not told yet. Raises `PrunedError`."""
        for point in points:
            if point.step > self._told and point.valid is not None:
                self._told, self.newest = point.step, point.valid
                if self._watch is not None:
                    self._watch(point.step, point.valid)


def native_parameters(output: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that H2O handed to its native library (name to value); the library itself tells none."""
    found = output.get("native_parameters")
    return {str(row[-2]): str(row[-1]) for row in found.cell_values} if found is not None else {}


def num_trees(output: Mapping[str, Any]) -> int:
    """How many trees were grown: fewer than the native library was asked for after an early stop."""
    history = output["scoring_history"]
    return int(history.cell_values[-1][history.col_header.index("number_of_trees")])


def learning_curve(output: Mapping[str, Any], unit: float) -> list[CurvePoint]:
    """The losses, of labels in `unit`; none before the first trees are scored."""
    history = output["scoring_history"]
    if history is None or "validation_custom" not in history.col_header:
        return []
    rows = [dict(zip(history.col_header, row, strict=True)) for row in history.cell_values]
    elapsed_s = [pd.Timedelta(row["duration"]).total_seconds() for row in rows]
    points = []
    for row, at_s in zip(rows, elapsed_s, strict=True):
        trees, train = int(row["number_of_trees"]), row.get("training_custom")
        if trees and isinstance(valid := row["validation_custom"], float):
            points.append(
                CurvePoint(
                    step=trees,
                    elapsed_s=round(at_s - elapsed_s[0], 3),
                    train=train * unit if isinstance(train, float) else None,
                    valid=valid * unit,
                )
            )
    return points
