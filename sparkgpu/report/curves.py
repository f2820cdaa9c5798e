"""The numbers behind the plots: predictions joined to labels, ROC curves, confusion, learning curves.

Limits: only the test split, and at most `MOST_ROWS` rows of it, evenly spaced, since more rows do not improve
a picture. Rows have the same weights as in the scorer. N rows, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparkgpu.rundir.curve import read_curve
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results
from sparkgpu.score.blend import blend
from sparkgpu.score.predictions import LabelReader, Labels, averaged, trial_predictions
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema

MOST_ROWS = 200_000
MOST_POINTS = 500  # per line: more points than pixels across would only take time


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
    order_N = np.argsort(-score_N, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(score_N[order_N]) != 0, True))
    weight_N = labels.counts()[order_N]
    positive_N = labels.label_N[order_N] == 1
    true = np.concatenate([[0.0], np.cumsum(weight_N * positive_N)[ends]])
    false = np.concatenate([[0.0], np.cumsum(weight_N * ~positive_N)[ends]])
    true, false = true / true[-1], false / false[-1]
    if len(true) > MOST_POINTS:
        # Evenly along the curve, which is steep at first: even steps on one axis would cut its corner.
        kept = np.unique(np.searchsorted(true + false, np.linspace(0.0, 2.0, MOST_POINTS)))
        kept = np.unique(np.append(kept[kept < len(true)], len(true) - 1))
        true, false = true[kept], false[kept]
    return false, true


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
    train: FloatArray
    valid: FloatArray


def learning_curve(path: Path) -> LearningCurve | None:
    """None if the file is absent or holds no point."""
    metric, points = read_curve(path)
    if not points:
        return None
    points = points[:: -(-len(points) // MOST_POINTS)]
    return LearningCurve(
        metric=metric,
        step=np.array([point.step for point in points], dtype=np.float64),
        train=np.array([point.train for point in points], dtype=np.float64),
        valid=np.array([point.valid for point in points], dtype=np.float64),
    )
