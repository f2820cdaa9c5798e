"""What H2O tells about a model: its losses while it grows, and then its parameters and its curve."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import h2o
from h2o.estimators import H2OXGBoostEstimator
from h2o.exceptions import H2OError

from sparkgpu.core.rundir.curve import CurvePoint, curve_as_csv
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.trials.engine import TreesTrial

_ASK_EVERY_S = 1.5
_ASK_TO_SHOW_EVERY_S = 3.0  # each question is work for the node that trains


class WatchedHistory:
    """Tells a search the loss at each point of the scoring history, in order; `newest` is the last one.

    What the search decides depends only on the history, so it is told all of it again after the last tree: a
    setting is given up whether or not H2O was asked in time.
    """

    def __init__(self, model: H2OXGBoostEstimator, trial: TreesTrial) -> None:
        self._model = model
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
            self.tell(found["scoring_history"])

    def tell(self, history: Any) -> None:
        """Tell the points of a history that were not told yet. Raises `PrunedError`."""
        if history is None:
            return
        names = history.col_header
        if "validation_custom" not in names:  # before the first trees are scored
            return
        trees, valid = names.index("number_of_trees"), names.index("validation_custom")
        for row in history.cell_values:
            if int(row[trees]) > self._told and isinstance(row[valid], float):
                self._told, self.newest = int(row[trees]), row[valid]
                if self._watch is not None:
                    self._watch(self._told, row[valid])


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
