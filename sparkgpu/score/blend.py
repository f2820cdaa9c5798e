"""Convex weights for a mixture of models, and the mixture.

Limits: one weight per model, for all rows and classes. Weights are fitted on the given rows, which must be
the validation split (they are optimistic there). Deterministic, with no random start. Shapes: N rows, C
classes, M models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparkgpu.score.rows import FloatArray, Task, checked

NEGLIGIBLE = 1e-2
"""A smaller weight becomes 0: a model that adds nothing need not be deployed."""

_FLAT = 1e-12  # mixtures with a smaller relative gain count as equal
# Equal weights count as much as so many rows: what few rows seem to say about weights is mostly noise
# (benchmarks/results/2026-11-25-seconds.md).
_ROWS_OF_EQUAL_WEIGHTS = 300

Objective = Callable[[FloatArray], tuple[float, FloatArray]]


def blend_weights(
    task: Task, label_N: Any, predictions: Mapping[str, Any], *, weight_N: Any = None
) -> dict[str, float]:
    """Non-negative weights summing to one that minimise the mixture's log loss, or its squared error.

    ``predictions``: for each model, probabilities (N, C) or values (N,) of the same rows. Both objectives are
    convex in the weights, so their minimum is global. Few rows move it towards equal weights, unless that
    mixture's loss on these rows is above the least by more than its standard error. Equal models get equal
    weights; a single model gets 1.0. Keys keep their order. Raises the errors of ``rows.checked``.
    """
    names = list(predictions)
    if len(names) == 1:
        return {names[0]: 1.0}
    column_NM, share_N, count, scored_N = _columns(task, label_N, predictions, weight_N)
    objective = _objective(task, column_NM, share_N)
    found_M = _two(objective) if len(names) == 2 else _simplex(objective, len(names))
    found_M = np.where(found_M < NEGLIGIBLE, 0.0, found_M)
    equal_M = np.full(len(names), 1 / len(names))
    candidates = [equal_M, found_M / found_M.sum(), *np.eye(len(names))]
    # The first that is best up to rounding: equal shares if nothing can be gained, else the optimum.
    value_by_candidate = [objective(weight_M)[0] for weight_M in candidates]
    best = min(value_by_candidate)
    chosen = next(
        i for i, value in enumerate(value_by_candidate) if value <= best + _FLAT * max(abs(best), 1e-300)
    )
    least_M = candidates[chosen]
    telling = count * _telling_share(task, scored_N, share_N)
    own = telling / (telling + _ROWS_OF_EQUAL_WEIGHTS)
    moved_M = own * least_M + (1 - own) * equal_M
    moved_M = np.where(moved_M < NEGLIGIBLE, 0.0, moved_M)
    moved_M /= moved_M.sum()
    more_N = _losses(task, column_NM @ moved_M) - _losses(task, column_NM @ least_M)
    more = float(share_N @ more_N)
    error = float(np.sqrt(share_N @ (more_N - more) ** 2 / count))
    return dict(zip(names, (moved_M if more <= error else least_M).tolist(), strict=True))


def blend(predictions: Mapping[str, Any], weights: Mapping[str, float]) -> FloatArray:
    """The weighted mean of the predictions, (N, C) or (N,), float64; models with weight 0 may be absent."""
    used = {name: float(weight) for name, weight in weights.items() if weight != 0}
    total = sum(used.values())
    return np.asarray(
        sum(weight / total * np.asarray(predictions[name], dtype=np.float64) for name, weight in used.items())
    )


def _columns(
    task: Task, label_N: Any, predictions: Mapping[str, Any], weight_N: Any
) -> tuple[FloatArray, FloatArray, float, FloatArray]:
    """Each model's error or likelihood (N, M), shares and labels (N,) of the rows, and how many they count.

    A row of weight three counts as three rows.
    """
    all_rows = [checked(task, label_N, prediction, weight_N) for prediction in predictions.values()]
    columns = [
        rows.prediction - rows.label_N if task == "regression" else rows.likelihood_N() for rows in all_rows
    ]
    rows = all_rows[0]
    count_N = np.full(len(columns[0]), 1.0) if rows.weight_N is None else rows.weight_N
    count = float(count_N.sum())
    return np.stack(columns, axis=1), count_N / count, count, np.asarray(rows.label_N)


def _telling_share(task: Task, label_N: Any, share_N: FloatArray) -> float:
    """The share of rows that tell something of a model, since those of a much larger class tell little.

    It is the Gini impurity of the classes, by that of as many classes of equal size.
    """
    if task == "regression":
        return 1.0
    of_class_C = np.bincount(label_N.astype(np.int64), weights=share_N)
    of_class_C = of_class_C[of_class_C > 0]
    return (1 - float(of_class_C @ of_class_C)) / max(1 - 1 / len(of_class_C), NEGLIGIBLE)


def _losses(task: Task, mixed_N: FloatArray) -> FloatArray:
    return mixed_N**2 if task == "regression" else -np.log(mixed_N)


def _objective(task: Task, column_NM: FloatArray, share_N: FloatArray) -> Objective:
    """The mean loss of a mixture (M,), scaled to about one, with its gradient (M,)."""
    if task == "regression":
        # Weights sum to one: the mixture's error is the mixture of errors, a quadratic form in M x M.
        gram_MM = column_NM.T @ (share_N[:, None] * column_NM)
        gram_MM = gram_MM / (np.trace(gram_MM) / len(gram_MM) or 1.0)
        return lambda weight_M: (float(weight_M @ gram_MM @ weight_M), 2 * gram_MM @ weight_M)

    def log_loss(weight_M: FloatArray) -> tuple[float, FloatArray]:
        mixed_N = column_NM @ weight_M
        return float(-share_N @ np.log(mixed_N)), -((share_N / mixed_N) @ column_NM)

    return log_loss


def _two(objective: Objective) -> FloatArray:
    from scipy.optimize import minimize_scalar  # imported here, since ``blend`` alone needs no scipy

    found = minimize_scalar(
        lambda first: objective(np.array([first, 1 - first]))[0],
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return np.array([found.x, 1 - found.x])


def _simplex(objective: Objective, num_models: int) -> FloatArray:
    from scipy.optimize import minimize  # as above

    found = minimize(
        objective,
        np.full(num_models, 1 / num_models),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * num_models,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(num_models)},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    return np.clip(np.asarray(found.x, dtype=np.float64), 0.0, 1.0)
