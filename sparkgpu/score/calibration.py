"""How well probabilities are calibrated, and one number that improves them.

Temperature scaling and the expected calibration error are those of Guo et al., "On Calibration of Modern
Neural Networks" (ICML 2017). Limits: a temperature keeps the order of the classes in every row, so it changes
no accuracy and, with two classes, no ranking; it cannot mend a shift between classes. N rows, C classes, B
bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkgpu.score.rows import FloatArray, Task, checked

BINS = 15
"""Bins of equal width over the probability, as in the paper."""

_LEAST_PROBABILITY = 1e-7
_ALMOST_ZERO = 1e-38  # so small that scaling back gives the same again
_LOG_TEMPERATURES = (-2.5, 2.5)
_PRIOR = 0.3
"""The standard deviation of a temperature's logarithm before any row is seen: few models need 2 or a half."""


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Bins with rows: their mean probability, the share of rows where it came true, their weight (B,)."""

    probability_B: FloatArray
    share_B: FloatArray
    weight_B: FloatArray


def temperature(task: Task, label_N: Any, probability_NC: Any, weight_N: Any = None) -> float:
    """The temperature with the least log loss on these rows, which must not be those of training.

    Above 1 it makes probabilities less sure. On few rows it stays near 1: where all are predicted rightly,
    the least loss would be that of certainty. Raises the errors of ``rows.checked``.
    """
    from scipy.optimize import minimize_scalar  # a part of a second to import

    rows = checked(task, label_N, probability_NC, weight_N)
    log_NC = np.log(np.maximum(rows.probability_NC(), _LEAST_PROBABILITY))
    true_N = rows.label_N.astype(np.int64)
    count = len(true_N) if rows.weight_N is None else rows.weight_N.sum() ** 2 / (rows.weight_N**2).sum()

    def loss(log_temperature: float) -> float:
        scaled_NC = log_NC / np.exp(log_temperature)
        most_N = scaled_NC.max(axis=1)
        total_N = most_N + np.log(np.exp(scaled_NC - most_N[:, None]).sum(axis=1))
        own_N = np.take_along_axis(scaled_NC, true_N[:, None], axis=1)[:, 0]
        prior = log_temperature**2 / (2 * _PRIOR**2)
        return float(np.average(total_N - own_N, weights=rows.weight_N)) + prior / float(count)

    found = minimize_scalar(loss, bounds=_LOG_TEMPERATURES, method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x))


def scaled(probability_NC: Any, by: float) -> FloatArray:
    """Probabilities (N, C) at temperature `by`; their rows sum to one."""
    log_NC = np.log(np.maximum(np.asarray(probability_NC, dtype=np.float64), _ALMOST_ZERO)) / by
    share_NC = np.exp(log_NC - log_NC.max(axis=1, keepdims=True))
    return np.asarray(share_NC / share_NC.sum(axis=1, keepdims=True))


def reliability(
    task: Task, label_N: Any, probability_NC: Any, weight_N: Any = None, bins: int = BINS
) -> Reliability:
    """How often what was predicted came true, by its probability.

    That is the probability of class 1 with two classes, and that of the predicted class with more.
    """
    rows = checked(task, label_N, probability_NC, weight_N)
    whole_NC = rows.probability_NC()
    label_N = rows.label_N.astype(np.int64)
    if task == "binary":
        probability_N, came_true_N = whole_NC[:, 1], label_N == 1
    else:
        decided_N = whole_NC.argmax(axis=1)
        probability_N, came_true_N = whole_NC.max(axis=1), decided_N == label_N
    bin_N = np.minimum((probability_N * bins).astype(np.int64), bins - 1)
    count_N = np.ones(len(label_N)) if rows.weight_N is None else rows.weight_N
    weight_B = np.bincount(bin_N, weights=count_N, minlength=bins).astype(np.float64)
    held = weight_B > 0
    probability_B = np.bincount(bin_N, weights=count_N * probability_N, minlength=bins)[held]
    share_B = np.bincount(bin_N, weights=count_N * came_true_N, minlength=bins)[held]
    weight_B = weight_B[held]
    return Reliability(probability_B=probability_B / weight_B, share_B=share_B / weight_B, weight_B=weight_B)


def calibration_error(task: Task, label_N: Any, probability_NC: Any, weight_N: Any = None) -> float:
    """The expected calibration error: the mean distance of a bin's probability from what came true."""
    found = reliability(task, label_N, probability_NC, weight_N)
    return float(np.average(np.abs(found.probability_B - found.share_B), weights=found.weight_B))


def brier_score(task: Task, label_N: Any, probability_NC: Any, weight_N: Any = None) -> float:
    """The mean squared distance from the truth: of class 1 with two classes, the sum over more of them."""
    rows = checked(task, label_N, probability_NC, weight_N)
    whole_NC = rows.probability_NC()
    truth_NC = np.eye(whole_NC.shape[1])[rows.label_N.astype(np.int64)]
    squared_NC = np.square(whole_NC - truth_NC)
    each_N = squared_NC[:, 1] if task == "binary" else squared_NC.sum(axis=1)
    return float(np.average(each_N, weights=rows.weight_N))
