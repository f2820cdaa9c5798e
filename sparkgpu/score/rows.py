"""Checked rows: the labels, predictions and weights for every function of the scorer, and row losses.

Limits: arrays must fit in memory. They are checked once, at the boundary, and are float64 afterwards (numpy
only). The row losses here are the package's only definition of log loss, so a table of metrics, a comparison
and a blend cannot disagree. Shapes: N rows, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Task = Literal["binary", "multiclass", "regression"]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SUM_TOLERANCE = 1e-3
"""How far probabilities may be outside [0, 1], and row sums from 1, before they are refused."""

LOG_LOSS_CLIP = 1e-7
"""The least probability of the true class for log loss, about the resolution of float32. So a network that
predicts exactly 0 and a tree that predicts 1e-12 cost the same (16.1 nats) when they are surely wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRows:
    """Labels and one prediction, checked and without rows of weight zero.

    ``label_N`` holds class codes 0..C-1 (int64) or values (float64); ``prediction`` is (N, C) or (N,),
    float64, as the engine gave it; ``weight_N`` is None if all rows count equally.
    """

    task: Task
    label_N: IntArray | FloatArray
    prediction: FloatArray
    weight_N: FloatArray | None

    def part(self, place_M: IntArray) -> ScoredRows:
        """Some of the rows (M,), possibly several times."""
        return ScoredRows(
            task=self.task,
            label_N=self.label_N[place_M],
            prediction=self.prediction[place_M],
            weight_N=None if self.weight_N is None else self.weight_N[place_M],
        )

    def probability_NC(self) -> FloatArray:
        """Probabilities in [0, 1] whose rows sum to one (up to rounding)."""
        clipped_NC = np.clip(self.prediction, 0.0, 1.0)
        return np.asarray(clipped_NC / clipped_NC.sum(axis=1, keepdims=True), dtype=np.float64)

    def loss_N(self) -> FloatArray:
        """The loss of each row: log loss in nats (clipped at ``LOG_LOSS_CLIP``) or the squared error."""
        if self.task == "regression":
            return np.square(self.prediction - self.label_N)
        return -np.log(self.likelihood_N())

    def likelihood_N(self) -> FloatArray:
        """The probability of the true class, at least ``LOG_LOSS_CLIP``."""
        true_N = np.take_along_axis(self.probability_NC(), self.label_N[:, None].astype(np.int64), axis=1)[
            :, 0
        ]
        return np.maximum(true_N, LOG_LOSS_CLIP)


def checked(task: Task, label_N: Any, prediction: Any, weight_N: Any = None) -> ScoredRows:
    """Check and convert; the prediction is (N, C) probabilities, C = 2 for binary, or (N,) values.

    ``label_N``: class codes 0..C-1 or values. Rows whose weight is not above 0 are left out. Raises
    ValueError, one sentence with counts, for what a model may give: values that are missing or infinite,
    probabilities outside [0, 1] or rows that do not sum to one (both within ``SUM_TOLERANCE``). Also if no
    row is left.
    """
    values = np.asarray(prediction, dtype=np.float64)
    label: IntArray | FloatArray = np.asarray(label_N, dtype=np.float64)
    _check_finite(values)
    if task != "regression":
        label = label.astype(np.int64)
        _check_probability(values)
    weight = None
    if weight_N is not None:
        weight = np.asarray(weight_N, dtype=np.float64)
        kept_N = weight > 0
        label, values, weight = label[kept_N], values[kept_N], weight[kept_N]
    if len(label) == 0:
        raise ValueError(
            "there are no rows to score; a split with at least one row of weight above 0 is needed."
        )
    return ScoredRows(task=task, label_N=label, prediction=values, weight_N=weight)


def _check_finite(values: FloatArray) -> None:
    bad_N = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if bad_N.any():
        num_nan = int(np.isnan(values[bad_N]).reshape(int(bad_N.sum()), -1).any(axis=1).sum())
        raise ValueError(
            f"{int(bad_N.sum())} of {len(values)} rows have a prediction that is not finite ({num_nan} with "
            "NaN); every row needs a finite prediction."
        )


def _check_probability(values_NC: FloatArray) -> None:
    outside_N = ((values_NC < -SUM_TOLERANCE) | (values_NC > 1 + SUM_TOLERANCE)).any(axis=1)
    if outside_N.any():
        raise ValueError(
            f"{int(outside_N.sum())} of {len(values_NC)} rows hold a probability outside 0 to 1 "
            f"(they run from {values_NC.min():.6g} to {values_NC.max():.6g}); "
            "give probabilities, not margins or logits."
        )
    sum_N = values_NC.sum(axis=1)
    off_N = np.abs(sum_N - 1) > SUM_TOLERANCE
    if off_N.any():
        raise ValueError(
            f"{int(off_N.sum())} of {len(values_NC)} rows of probabilities do not sum to one within "
            f"{SUM_TOLERANCE:g} (the first sums to {sum_N[off_N][0]:.6g}); give one probability per class."
        )
