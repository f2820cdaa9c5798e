"""Checked rows: the labels, predictions and weights for every function of the scorer, and row losses.

Limits: arrays must fit in memory. They are checked once, at the boundary, and are float64 afterwards (numpy
only). The row losses here are the package's only definition of log loss, so a table of metrics, a comparison
and a blend cannot disagree. Shapes: N rows, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

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

    Raises ValueError, one sentence with counts, for an unknown task, wrong shapes, missing or infinite
    values, labels that are not class codes, probabilities outside [0, 1] or rows that do not sum to one (both
    within ``SUM_TOLERANCE``), negative weights, and if no row with a weight above zero is left.
    """
    if task not in get_args(Task):
        raise ValueError(f"task {task!r} is unknown; choose from {', '.join(get_args(Task))}.")
    label = np.asarray(label_N)
    values = np.asarray(prediction, dtype=np.float64)
    if label.ndim != 1:
        raise ValueError(f"labels have shape {label.shape}; one value per row, shape (N,), is needed.")
    _check_shape(task, len(label), values)
    _check_finite("prediction", values)
    if task == "regression":
        label = label.astype(np.float64)
        _check_finite("label", label)
    else:
        label = _codes(label, values.shape[1])
        _check_probability(values)
    weight = None if weight_N is None else _checked_weight(weight_N, len(label))
    if weight is not None and not weight.all():
        kept_N = weight > 0
        label, values, weight = label[kept_N], values[kept_N], weight[kept_N]
    if len(label) == 0:
        raise ValueError(
            "there are no rows to score; a split with at least one row of weight above 0 is needed."
        )
    return ScoredRows(task=task, label_N=label, prediction=values, weight_N=weight)


def _check_shape(task: Task, num_rows: int, values: FloatArray) -> None:
    if task == "regression":
        wanted, fits = f"({num_rows},)", values.shape == (num_rows,)
    elif task == "binary":
        wanted, fits = f"({num_rows}, 2)", values.shape == (num_rows, 2)
    else:
        wanted = f"({num_rows}, C) with C of at least 2"
        fits = values.ndim == 2 and values.shape[0] == num_rows and values.shape[1] >= 2
    if not fits:
        raise ValueError(f"{task} predictions have shape {values.shape}; {num_rows} labels need {wanted}.")


def _check_finite(what: str, values: FloatArray) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    bad_N = ~finite if values.ndim == 1 else ~finite.all(axis=1)
    num_nan = int(np.isnan(values[bad_N]).reshape(int(bad_N.sum()), -1).any(axis=1).sum())
    raise ValueError(
        f"{int(bad_N.sum())} of {len(values)} rows have a {what} that is not finite ({num_nan} with NaN); "
        f"every row needs a finite {what}."
    )


def _codes(label: npt.NDArray[Any], num_classes: int) -> IntArray:
    if not (np.issubdtype(label.dtype, np.number) or label.dtype == np.bool_):
        raise ValueError(f"labels have type {label.dtype}; class codes 0 to {num_classes - 1} are needed.")
    bad_N = ~((label >= 0) & (label < num_classes))
    if np.issubdtype(label.dtype, np.floating):
        bad_N |= label != np.floor(label)
    if bad_N.any():
        raise ValueError(
            f"{int(bad_N.sum())} of {len(label)} labels are not class codes (the first is "
            f"{label[bad_N][0]}); predictions with {num_classes} columns need codes 0 to {num_classes - 1}."
        )
    return label.astype(np.int64)


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


def _checked_weight(weight_N: Any, num_rows: int) -> FloatArray:
    weight = np.asarray(weight_N, dtype=np.float64)
    if weight.shape != (num_rows,):
        raise ValueError(f"weights have shape {weight.shape}; {num_rows} labels need ({num_rows},).")
    bad_N = ~(np.isfinite(weight) & (weight >= 0))
    if bad_N.any():
        raise ValueError(
            f"{int(bad_N.sum())} of {num_rows} weights are negative, infinite or NaN; none may be."
        )
    return weight
