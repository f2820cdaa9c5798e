"""The numbers behind the pictures: ROC and its kin, confusion, learning curves.

At most `MOST_POINTS` points of a line. Rows have the same weights as in the scorer. N rows, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.metrics_json import DoneTrial, Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.score.predictions import Labels
from sparkgpu.score.rows import FloatArray

MOST_POINTS = 240  # per line: a picture of some 400 pixels shows no more


def roc(labels: Labels, score_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """False and true positive rates, from (0, 0) to (1, 1), with at most `MOST_POINTS` points.

    Rows with equal scores are one step, as for the area in ``metrics.json``. Both classes must occur.
    """
    true, false = _found(labels, score_N)
    true, false = true / true[-1], false / false[-1]
    # Evenly along the curve, which is steep at first: even steps on one axis would cut its corner.
    kept = _thinned(true + false)
    return false[kept], true[kept]


def precision_recall(labels: Labels, score_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Recall and precision when ever more rows are taken for positive, the surest first, as for `roc`."""
    true, false = (values[1:] for values in _found(labels, score_N))
    recall, precision = true / true[-1], true / (true + false)
    kept = _thinned(recall)
    return recall[kept], precision[kept]


def _found(labels: Labels, score_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The weight of positives and of negatives above each threshold, from none to all rows."""
    order_N = np.argsort(-score_N, kind="stable")
    order_N = order_N[labels.counts()[order_N] > 0]
    ends = np.flatnonzero(np.append(np.diff(score_N[order_N]) != 0, True))
    weight_N = labels.counts()[order_N]
    positive_N = labels.label_N[order_N] == 1
    true = np.concatenate([[0.0], np.cumsum(weight_N * positive_N)[ends]])
    false = np.concatenate([[0.0], np.cumsum(weight_N * ~positive_N)[ends]])
    return true, false


def _thinned(along: FloatArray) -> NDArray[np.int64]:
    """At most `MOST_POINTS` places, even steps along rising values; the first and the last are among them."""
    if len(along) <= MOST_POINTS:
        return np.arange(len(along))
    kept = np.searchsorted(along, np.linspace(along[0], along[-1], MOST_POINTS))
    return np.unique(np.append(kept[kept < len(along)], len(along) - 1))


def confusion(labels: Labels, probability_NC: FloatArray) -> FloatArray:
    """The share of each true class (row) predicted as each class (column), (C, C); 0 for absent classes."""
    num_classes = probability_NC.shape[1]
    codes_N = labels.label_N.astype(np.int64) * num_classes + probability_NC.argmax(axis=1)
    counts = np.bincount(codes_N, weights=labels.counts(), minlength=num_classes**2)
    counts_CC = counts.reshape(num_classes, -1)
    totals_C1 = counts_CC.sum(axis=1, keepdims=True)
    return np.asarray(counts_CC / np.where(totals_C1 > 0, totals_C1, 1.0))


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """``learning_curve.csv`` of one trial, for its first metric; NaN for a blank value.

    `at_s` are seconds since its training began; they are not `exact` if the engine gave none: then the steps
    are spread evenly over the trial's time. `kept` is the place of the step that is kept.
    """

    model: str
    metric: str
    at_s: FloatArray
    train: FloatArray
    valid: FloatArray
    kept: int | None
    exact: bool


def learning_curves(paths: RunPaths, results: Results) -> list[LearningCurve]:
    """The curves of all trials that left one, in the order of the models."""
    found = []
    for trial in results.trials:
        metric, points = read_curve(paths.trial(trial.name).learning_curve)
        if not points:
            continue
        every = -(-len(points) // MOST_POINTS)
        columns = np.array(points[:-1][::every] + points[-1:], dtype=np.float64)  # None becomes NaN
        step, elapsed_s, train, valid = columns.T
        exact, whole_s, kept = bool(np.isfinite(elapsed_s).all()), float(step[-1]), None
        if isinstance(trial, DoneTrial):
            whole_s = trial.fit_s
            if step[0] <= trial.best_iteration <= step[-1]:
                kept = int(np.abs(step - trial.best_iteration).argmin())
        at_s = elapsed_s if exact else whole_s * step / max(float(step[-1]), 1.0)
        found.append(
            LearningCurve(
                model=trial.model, metric=metric, at_s=at_s, train=train, valid=valid, kept=kept, exact=exact
            )
        )
    order = {model.name: place for place, model in enumerate(results.models)}
    return sorted(found, key=lambda one: order.get(one.model, len(order)))
