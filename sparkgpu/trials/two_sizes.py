"""Grows a trial's trees in two sizes if it asks for that, and keeps those that the validation rows prefer.

Where rows are few, noise decides how fine trees may be: on some tables trees of eight leaves are better by a
tenth of the loss, on others worse by as much (benchmarks/results/2026-11-against-others.md). Each size is a
training of its own, in a folder beside the trial's; the better one's files become the trial's.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sparkgpu.core.config.parameters import TreesParameters
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.words import number_text
from sparkgpu.trials.engine import Trial

_LEAVES = 8
_DEPTH = 3


def run_sizes(run: Callable[[Trial[Any]], FitRecord], trial: Trial[Any]) -> FitRecord:
    """What an engine's `run` gives, called twice for a trial that asks for two sizes; `fit_s` is of both.

    An engine of another package that writes no losses to its learning curve keeps its first training.
    """
    parameters = trial.parameters
    asks = isinstance(parameters, TreesParameters) and parameters.try_smaller
    if not asks or trial.spec.settings:  # a search tries sizes of its own
        return run(trial)
    now = time.monotonic()
    half = None if trial.until is None else now + (trial.until - now) / 2
    larger = replace(_changed(trial, 0, {}), until=half)
    smaller = _changed(trial, 1, {"max_depth": _DEPTH, "max_leaves": _LEAVES if parameters.max_leaves else 0})
    for one in (larger, smaller):  # left by a run that was stopped
        shutil.rmtree(one.paths.root, ignore_errors=True)
    first = run(larger)
    if (loss := _loss(larger)) is None:
        larger.paths.move_to(trial.paths)
        return first.model_copy(update={"trial": trial.name})
    second = run(smaller)
    small_loss = _loss(smaller)
    is_better = small_loss is not None and small_loss < loss
    (smaller if is_better else larger).paths.move_to(trial.paths)
    shutil.rmtree((larger if is_better else smaller).paths.root)
    record = second if is_better else first
    what = "log loss" if trial.schema.classes else "RMSE"
    note = (
        f"grown in two sizes, and the trees of {f'at most {_LEAVES} leaves' if is_better else 'more leaves'} "
        f"kept: {what} on the validation rows {number_text(small_loss)} with at most {_LEAVES} leaves, "
        f"{number_text(loss)} with more"
    )
    update = {"trial": trial.name, "fit_s": first.fit_s + second.fit_s, "notes": (*record.notes, note)}
    return record.model_copy(update=update)


def _changed(trial: Trial[Any], number: int, changes: Mapping[str, int]) -> Trial[Any]:
    return replace(
        trial,
        spec=trial.spec.model_copy(update={"name": f"{trial.name}.{number}"}),
        parameters=trial.parameters.model_copy(update={"try_smaller": False, **changes}),
    )


def _loss(trial: Trial[Any]) -> float | None:
    """The validation loss of the trees that a model keeps, from its learning curve."""
    _, points = read_curve(trial.paths.learning_curve)
    losses = [point.valid for point in points if point.valid is not None]
    if not losses:
        return None
    return min(losses) if trial.parameters.early_stopping_rounds else losses[-1]
