"""The package's own metrics, each a function of checked rows; None where the rows do not define it.

scikit-learn computes all except log loss (``rows.py``) and Spearman's rank correlation, which scikit-learn
lacks and scipy has only without weights. Shapes: N rows, C classes, G groups of tied rows, in rising order.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from sparkgpu.core.config.values import POWERS
from sparkgpu.score.rows import FloatArray, ScoredRows


def placements(positive_N: Any, score_N: FloatArray, weight_N: FloatArray) -> FloatArray:
    """For positives the share of the negatives' weight below, for negatives that of the positives' above.

    Ties count half. The mean over the positives is the area under the ROC curve.
    """
    group_N = np.unique(score_N, return_inverse=True)[1]
    tied_P_G = np.bincount(group_N, weights=np.where(positive_N, weight_N, 0.0))
    tied_Q_G = np.bincount(group_N, weights=np.where(positive_N, 0.0, weight_N))
    below_G = (np.cumsum(tied_Q_G) - tied_Q_G / 2) / tied_Q_G.sum()
    above_G = (np.cumsum(tied_P_G[::-1])[::-1] - tied_P_G / 2) / tied_P_G.sum()
    return np.asarray(np.where(positive_N, below_G[group_N], above_G[group_N]))


def decided(rows: ScoredRows) -> Any:
    """The most probable class (N,)."""
    return rows.prediction.argmax(axis=1)


def _mean(value_N: Any, rows: ScoredRows) -> float:
    return float(np.average(value_N, weights=rows.weight_N))


def loss(rows: ScoredRows) -> float:
    """The mean over the rows: log loss, or of a regression the squared error."""
    return _mean(rows.loss_N(), rows)


def _roc_auc(rows: ScoredRows) -> float | None:
    from sklearn.metrics import roc_auc_score  # a second to import, which other questions need not wait for

    if not rows.label_N.any() or rows.label_N.all():
        return None
    return float(roc_auc_score(rows.label_N, rows.prediction[:, 1], sample_weight=rows.weight_N))


def _average_precision(rows: ScoredRows) -> float | None:
    from sklearn.metrics import average_precision_score

    if not rows.label_N.any():
        return None
    return float(average_precision_score(rows.label_N, rows.prediction[:, 1], sample_weight=rows.weight_N))


def _brier(rows: ScoredRows) -> float:
    return _mean(np.square(rows.probability_NC()[:, 1] - rows.label_N), rows)


def _accuracy(rows: ScoredRows) -> float:
    return _mean(decided(rows) == rows.label_N, rows)


def _f1(rows: ScoredRows) -> float | None:
    from sklearn.metrics import f1_score

    f1 = float(f1_score(rows.label_N, decided(rows), sample_weight=rows.weight_N, zero_division=math.nan))
    return None if math.isnan(f1) else f1


def _balanced_accuracy(rows: ScoredRows) -> float:
    from sklearn.metrics import balanced_accuracy_score

    with warnings.catch_warnings():
        # A predicted class without labels is left out of the mean, as documented.
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        return float(balanced_accuracy_score(rows.label_N, decided(rows), sample_weight=rows.weight_N))


def _f1_macro(rows: ScoredRows) -> float:
    from sklearn.metrics import f1_score

    decided_N, weight_N = decided(rows), rows.weight_N
    return float(
        f1_score(rows.label_N, decided_N, average="macro", sample_weight=weight_N, zero_division=0.0)
    )


def rmse(rows: ScoredRows) -> float:
    return math.sqrt(loss(rows))


def _mae(rows: ScoredRows) -> float:
    return _mean(np.abs(rows.prediction - rows.label_N), rows)


def _r2(rows: ScoredRows) -> float | None:
    from sklearn.metrics import r2_score

    if np.all(rows.label_N == rows.label_N[0]):
        return None
    return float(r2_score(rows.label_N, rows.prediction, sample_weight=rows.weight_N))


def _spearman(rows: ScoredRows) -> float | None:
    """Pearson correlation of midranks; a row of weight k counts like k equal rows."""
    if any(np.all(values == values[0]) for values in (rows.label_N, rows.prediction)):
        return None
    weight_N = np.ones(len(rows.label_N)) if rows.weight_N is None else rows.weight_N
    rank_a, rank_b = _midrank(rows.label_N, weight_N), _midrank(rows.prediction, weight_N)
    rank_a -= np.average(rank_a, weights=weight_N)
    rank_b -= np.average(rank_b, weights=weight_N)
    spread = math.sqrt(float(weight_N @ rank_a**2)) * math.sqrt(float(weight_N @ rank_b**2))
    return float(np.clip(float((weight_N * rank_a) @ rank_b) / spread, -1.0, 1.0))


def _deviance(rows: ScoredRows, power: float) -> float | None:
    from sklearn.metrics import mean_tweedie_deviance

    if rows.prediction.min() <= 0 or rows.label_N.min() < 0 or (power == 2 and rows.label_N.min() == 0):
        return None
    found = mean_tweedie_deviance(rows.label_N, rows.prediction, sample_weight=rows.weight_N, power=power)
    return float(found)


def _rmse_of_logarithms(rows: ScoredRows) -> float | None:
    if min(rows.prediction.min(), rows.label_N.min()) <= 0:
        return None
    error_N = np.log(rows.prediction) - np.log(rows.label_N)
    return math.sqrt(_mean(np.square(error_N), rows))


def _midrank(value_N: Any, weight_N: FloatArray) -> FloatArray:
    """The weight below each row and half the weight tied with it (for unit weights: the midrank less 1/2)."""
    group_N = np.unique(value_N, return_inverse=True)[1]
    tied_G = np.bincount(group_N, weights=weight_N)
    return np.asarray((np.cumsum(tied_G) - tied_G / 2)[group_N])


OWN: Mapping[str, Callable[[ScoredRows], float | None]] = {
    "roc_auc": _roc_auc, "average_precision": _average_precision, "log_loss": loss, "brier": _brier,
    "accuracy": _accuracy, "f1": _f1, "balanced_accuracy": _balanced_accuracy, "f1_macro": _f1_macro,
    "rmse": rmse, "mae": _mae, "r2": _r2, "spearman": _spearman,
    "rmse_of_logarithms": _rmse_of_logarithms,
    "poisson_deviance": partial(_deviance, power=POWERS["poisson"]),
    "gamma_deviance": partial(_deviance, power=POWERS["gamma"]),
    "tweedie_deviance": partial(_deviance, power=POWERS["tweedie"]),
}  # fmt: skip
