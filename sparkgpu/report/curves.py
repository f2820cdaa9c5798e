"""The numbers behind the plots: predictions joined to labels, ROC curves, confusion, learning curves.

Limits: only the test split, and at most `MOST_ROWS` rows of it, evenly spaced, since more rows do not improve
a picture. Rows have the same weights as in the scorer. N rows, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sparkgpu.rundir.curve import read_curve
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results
from sparkgpu.score.blend import blend
from sparkgpu.score.predictions import LabelReader, Labels, averaged, trial_predictions
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema

MOST_ROWS = 200_000
MOST_POINTS = 240  # per line: a picture of some 400 pixels shows no more


@dataclass(frozen=True, kw_only=True)
class TestRows:
    """The test split's rows and the predictions of each model's finished trials, in the same order.

    Predictions are probabilities (N, C), or values (N,) for regression. The arrays hold every `every`-th row
    of the split.
    """

    labels: Labels
    trials: dict[str, tuple[FloatArray, ...]]
    every: int = 1

    def mean(self, model: str) -> FloatArray:
        """The model's predictions averaged over its trials."""
        return averaged(self.trials[model])


def read_test(paths: RunPaths, schema: TableSchema, results: Results) -> TestRows:
    """Read the existing predictions, without trials whose file is gone or does not fit the table."""
    labels = LabelReader(paths, schema).of("test")
    every = -(-len(labels.label_N) // MOST_ROWS) or 1
    trials: dict[str, tuple[FloatArray, ...]] = {}
    for trial in results.done():
        try:
            values = trial_predictions(paths, schema, trial.name, {"test": labels})["test"]
        except (KeyError, OSError, ValueError):
            continue
        shown = values[::every].copy()  # frees the memory of the other rows
        trials[trial.model] = (*trials.get(trial.model, ()), shown)
    for model in results.models:
        if model.weights and model.weights.keys() <= trials.keys():
            mixed = blend({name: averaged(trials[name]) for name in model.weights}, model.weights)
            trials[model.name] = (mixed,)
    return TestRows(labels=labels.each(every), trials=trials, every=every)


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


def gains(labels: Labels, score_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The share of all rows that are looked at, the surest first, and the share of positives among them."""
    true, false = _found(labels, score_N)
    looked_at = true + false
    kept = _thinned(looked_at)
    return looked_at[kept] / looked_at[-1], true[kept] / true[-1]


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
    """``learning_curve.csv`` of one trial, for its first metric; NaN for a blank value."""

    metric: str
    step: FloatArray
    elapsed_s: FloatArray
    train: FloatArray
    valid: FloatArray


def learning_curve(path: Path) -> LearningCurve | None:
    """None if the file is absent or holds no point."""
    metric, points = read_curve(path)
    if not points:
        return None
    every = -(-len(points) // MOST_POINTS)
    points = points[:-1][::every] + points[-1:]
    columns = np.array(points, dtype=np.float64)  # None becomes NaN
    step, elapsed_s, train, valid = columns.T
    return LearningCurve(metric=metric, step=step, elapsed_s=elapsed_s, train=train, valid=valid)
