"""The metrics of one prediction, and the better direction of each.

Limits: one split in memory. scikit-learn computes all except log loss (``rows.py``) and Spearman's rank
correlation, which scikit-learn lacks and scipy has only without weights. A metric that the rows do not define
(ROC AUC if one class is absent) is None, ``null`` in ``metrics.json``: the key stays, and no number is
invented. Shapes: N rows, C classes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparkgpu.score.rows import FloatArray, ScoredRows, Task, checked

Metrics = dict[str, float | None]

_METRICS: dict[str, tuple[str, ...]] = {
    "binary": ("roc_auc", "average_precision", "log_loss", "brier", "accuracy", "f1"),
    "multiclass": ("log_loss", "accuracy", "balanced_accuracy", "f1_macro"),
    "regression": ("rmse", "mae", "r2", "spearman"),
}
_PRIMARY = {"binary": "roc_auc", "multiclass": "log_loss", "regression": "rmse"}
_SMALLER_IS_BETTER = frozenset({"log_loss", "brier", "rmse", "mae"})


def names(task: Task) -> tuple[str, ...]:
    """The metrics of a task, in the order of ``compute``."""
    return _METRICS[task]


def primary(task: Task) -> str:
    """The metric for comparisons and for the choice of the leader."""
    return _PRIMARY[task]


def greater_is_better(metric: str) -> bool:
    """True for ROC AUC and the like, False for losses and errors."""
    return metric not in _SMALLER_IS_BETTER


def score(metric: str, value: float) -> float:
    """The metric's value with the sign for which greater is better (losses change sign)."""
    return value if greater_is_better(metric) else -value


def best(metric: str, values: Mapping[str, float | None]) -> tuple[str, ...]:
    """The names whose value is best, in their order: several where they share it, none without any value."""
    scores = {
        name: score(metric, value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }
    greatest = max(scores.values(), default=None)
    return tuple(name for name, found in scores.items() if found == greatest)


def compute(task: Task, label_N: Any, prediction: Any, weight_N: Any = None) -> Metrics:
    """All metrics of the task, always with the same keys (``names(task)``).

    ``label_N``: class codes 0..C-1, or values. ``prediction``: probabilities (N, C), two columns for binary,
    or values (N,). ``weight_N``: non-negative row weights. Raises the errors of ``rows.checked``.

    The predicted class is the most probable one, and of two equal ones that with the lower code (binary:
    class 1 above 0.5). Ranking metrics use the probability of class 1 as given; the others use rows scaled to
    sum to one; log loss is clipped (``rows.LOG_LOSS_CLIP``). A metric is None if the rows do not define it:
    ``roc_auc`` with one class, ``average_precision`` without a positive row, ``f1`` without a positive row or
    prediction, ``r2`` and ``spearman`` with constant labels, ``spearman`` with constant predictions.
    ``balanced_accuracy`` averages over the classes among the labels, ``f1_macro`` over those among labels or
    predictions.
    """
    rows = checked(task, label_N, prediction, weight_N)
    values = _regression(rows) if task == "regression" else _classes(rows)
    return {name: values[name] for name in names(task)}


def primary_value(task: Task, label_N: Any, prediction: Any, weight_N: Any = None) -> float | None:
    """The primary metric alone, as `compute` gives it, without scikit-learn: a fraction of a millisecond.

    Raises the errors of ``rows.checked``.
    """
    rows = checked(task, label_N, prediction, weight_N)
    if task != "binary":
        loss = float(np.average(rows.loss_N(), weights=rows.weight_N))
        return math.sqrt(loss) if task == "regression" else loss
    weight_N = np.ones(len(rows.label_N)) if rows.weight_N is None else rows.weight_N
    positive_N = rows.label_N == 1
    positive, negative = float(weight_N[positive_N].sum()), float(weight_N[~positive_N].sum())
    if not positive or not negative:
        return None
    # The ranks of the positive rows, less what they have among themselves, are the negative ones below them.
    rank_N = _midrank(rows.prediction[:, 1], weight_N)
    below = float((weight_N * rank_N)[positive_N].sum()) - positive**2 / 2
    return below / (positive * negative)


def mean_loss(task: Task, label_N: Any, prediction: Any, weight_N: Any = None) -> float:
    """The log loss of `compute`, or the squared error of a regression, without scikit-learn.

    Raises the errors of ``rows.checked``.
    """
    rows = checked(task, label_N, prediction, weight_N)
    return float(np.average(rows.loss_N(), weights=rows.weight_N))


def mean_and_std(trials: Sequence[Metrics]) -> tuple[Metrics, Metrics]:
    """Mean and sample standard deviation (n - 1) of each metric over trials with the same keys.

    A metric that any trial lacks (None) is None in both; the spread of a single trial is None.
    """
    mean: Metrics = {}
    std: Metrics = {}
    for name in trials[0]:
        values = [value for trial in trials if (value := trial[name]) is not None]
        complete = len(values) == len(trials)
        mean[name] = float(np.mean(values)) if complete else None
        std[name] = float(np.std(values, ddof=1)) if complete and len(values) > 1 else None
    return mean, std


def _classes(rows: ScoredRows) -> Metrics:
    from sklearn import metrics as sk  # a second to import, which primary() and the like must not need

    label_N, weight_N = rows.label_N, rows.weight_N
    decided_N = rows.prediction.argmax(axis=1)
    values: Metrics = {
        "log_loss": float(np.average(rows.loss_N(), weights=weight_N)),
        "accuracy": float(sk.accuracy_score(label_N, decided_N, sample_weight=weight_N)),
    }
    if rows.task == "multiclass":
        with warnings.catch_warnings():
            # A predicted class without labels is left out of the mean, as documented.
            warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
            values["balanced_accuracy"] = float(
                sk.balanced_accuracy_score(label_N, decided_N, sample_weight=weight_N)
            )
        values["f1_macro"] = float(
            sk.f1_score(label_N, decided_N, average="macro", sample_weight=weight_N, zero_division=0.0)
        )
        return values
    positive_N = rows.prediction[:, 1]
    any_positive, any_negative = bool(label_N.any()), not label_N.all()
    both = any_positive and any_negative
    values["roc_auc"] = float(sk.roc_auc_score(label_N, positive_N, sample_weight=weight_N)) if both else None
    values["average_precision"] = (
        float(sk.average_precision_score(label_N, positive_N, sample_weight=weight_N))
        if any_positive
        else None
    )
    values["brier"] = float(np.average(np.square(rows.probability_NC()[:, 1] - label_N), weights=weight_N))
    f1 = float(sk.f1_score(label_N, decided_N, sample_weight=weight_N, zero_division=math.nan))
    values["f1"] = None if math.isnan(f1) else f1
    return values


def _regression(rows: ScoredRows) -> Metrics:
    from sklearn import metrics as sk  # as above

    label_N, value_N, weight_N = rows.label_N, rows.prediction, rows.weight_N
    constant = bool(np.all(label_N == label_N[0]))
    return {
        "rmse": float(sk.root_mean_squared_error(label_N, value_N, sample_weight=weight_N)),
        "mae": float(sk.mean_absolute_error(label_N, value_N, sample_weight=weight_N)),
        "r2": None if constant else float(sk.r2_score(label_N, value_N, sample_weight=weight_N)),
        "spearman": None if constant else _spearman(rows),
    }


def _spearman(rows: ScoredRows) -> float | None:
    """Pearson correlation of midranks; a row of weight k counts like k equal rows."""
    if np.all(rows.prediction == rows.prediction[0]):
        return None
    weight_N = np.ones(len(rows.label_N)) if rows.weight_N is None else rows.weight_N
    rank_a, rank_b = _midrank(rows.label_N, weight_N), _midrank(rows.prediction, weight_N)
    rank_a -= np.average(rank_a, weights=weight_N)
    rank_b -= np.average(rank_b, weights=weight_N)
    spread = math.sqrt(float(weight_N @ rank_a**2)) * math.sqrt(float(weight_N @ rank_b**2))
    return float(np.clip(float((weight_N * rank_a) @ rank_b) / spread, -1.0, 1.0))


def _midrank(value_N: Any, weight_N: FloatArray) -> FloatArray:
    """The weight below each row and half the weight tied with it (for unit weights: the midrank less 1/2)."""
    group_N = np.unique(value_N, return_inverse=True)[1]  # G groups of tied rows, in rising order
    tied_G = np.bincount(group_N, weights=weight_N)
    return np.asarray((np.cumsum(tied_G) - tied_G / 2)[group_N])
