"""The losses of a model that grows in H2O: for those who watch, and for a search that may give it up."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import h2o
from h2o.estimators import H2OXGBoostEstimator
from h2o.exceptions import H2OError

from sparkgpu.engines.engine import TreesTrial

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
