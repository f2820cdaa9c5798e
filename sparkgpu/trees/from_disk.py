"""Trees of the library xgboost on a table beyond memory: its bins are files, made of the table page by page.

The bins take a quarter of the table's float32, and XGBoost maps their files, so what is in the system's cache
is not read again. Limits: tree method hist on the CPU; labels, weights, gradients and predictions of all rows
are in memory. Cuts come from sketches of pages, and may differ a little from those of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import Predictions
from sparkgpu.core.table.rows import RowGroups, Rows, pages, read_rows
from sparkgpu.core.table.schema import SplitName
from sparkgpu.trees.boosting import Fitted, Progress, feature_frame, training_weights
from sparkgpu.trees.level_order import with_means
from sparkgpu.trials.engine import Ranks, TreesTrial

_PAGE_VALUES = 2**25
"""Of a page while it becomes bins: 128 MiB as float32."""

Fit = Callable[[xgboost.DMatrix, xgboost.DMatrix, Progress], Fitted]


class _Pages(xgboost.DataIter):
    """The rows of a split, a page at a time, as often as XGBoost asks for them."""

    def __init__(
        self, trial: TreesTrial, split: SplitName, weight_N: NDArray[np.float32] | None, cache: Path
    ) -> None:
        super().__init__(cache_prefix=str(cache / split))
        self._trial, self._split, self._weight_N = trial, split, weight_N
        self.reset()

    def reset(self) -> None:
        self._left, self._begin = _pages(self._trial, self._split), 0

    def next(self, input_data: Callable[..., Any]) -> bool:
        rows = next(self._left, None)
        if rows is None:
            return False
        part = slice(self._begin, self._begin + len(rows.row_id_N))
        self._begin = part.stop
        weight_N = None if self._weight_N is None else self._weight_N[part]
        frame = feature_frame(rows, self._trial.schema, with_means(self._trial.schema))
        input_data(data=frame, label=rows.label_N, weight=weight_N)
        return True


def run_from_disk(trial: TreesTrial, reason: str, fit: Fit) -> FitRecord:
    """Train by `fit`, which gets the matrices of train and valid, and predict page by page.

    `reason` says why, for the record's notes.
    """
    paths, events, schema = trial.paths, trial.events, trial.schema
    paths.root.mkdir(parents=True, exist_ok=True)
    cache = trial.scratch / trial.name
    cache.mkdir(parents=True, exist_ok=True)
    with events.phase("reading the table", trial.name):
        rows = {
            split: read_rows(trial.run, schema, split, fold=trial.spec.fold, features=False)
            for split in ("train", "valid")
        }
        train_rows = len(rows["train"].row_id_N)
        common = {"enable_categorical": True, "nthread": trial.lane.tree_threads}
        common["max_bin"] = trial.parameters.max_bins
        weight_N = training_weights(rows["train"], trial.parameters.distribution, Ranks())
        train = xgboost.ExtMemQuantileDMatrix(_Pages(trial, "train", weight_N, cache), **common)
        pages_of_valid = _Pages(trial, "valid", rows.pop("valid").weight_N, cache)
        valid = xgboost.ExtMemQuantileDMatrix(pages_of_valid, ref=train, **common)
        rows.clear()
    progress = Progress(trial, Ranks())
    fitted, fit_s = progress.timed(lambda: fit(train, valid, progress))
    with events.phase("predicting", trial.name):
        start = time.perf_counter()
        predictions: Predictions = {
            "valid": _predicted(trial, "valid", fitted),
            "test": _predicted(trial, "test", fitted),
        }
        predict_s = time.perf_counter() - start
    fitted.write(trial, predictions)
    record = fitted.record(trial, fit_s=fit_s, predict_s=predict_s, train_rows=train_rows)
    return record.model_copy(update={"out_of_time": progress.out_of_time, "notes": (*record.notes, reason)})


def _predicted(
    trial: TreesTrial, split: SplitName, fitted: Fitted
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    ids, values = [], []
    for rows in _pages(trial, split):
        ids.append(rows.row_id_N)
        values.append(fitted.predict(feature_frame(rows, trial.schema, with_means(trial.schema))))
    return np.concatenate(ids), np.concatenate(values)


def _pages(trial: TreesTrial, split: SplitName) -> Iterator[Rows]:
    groups = RowGroups(trial.run, trial.schema, split, fold=trial.spec.fold)
    return pages(groups.blocks(), _PAGE_VALUES // max(len(trial.schema.features), 1))
