"""The metrics of one prediction, and the better direction of each.

A run can be decided by a metric that is not among those of its task: a scorer of scikit-learn, by its name,
or a function of another package (`sparkgpu.core.config.registry.metrics_of_packages`).

Limits: one split in memory. A metric that the rows do not define (ROC AUC if one class is absent) is None,
``null`` in ``metrics.json``: the key stays, and no number is invented. Shapes: N rows, C classes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparkgpu.core.config.registry.metrics_of_packages import METRICS
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.words import nearest
from sparkgpu.score.own_metrics import OWN, decided, loss, placements, rmse
from sparkgpu.score.rows import ScoredRows, Task, checked

Metrics = dict[str, float | None]

_METRICS: dict[str, tuple[str, ...]] = {
    "binary": ("roc_auc", "average_precision", "log_loss", "brier", "accuracy", "f1"),
    "multiclass": ("log_loss", "accuracy", "balanced_accuracy", "f1_macro"),
    "regression": ("rmse", "mae", "r2", "spearman"),
}
DEVIANCES = {
    "lognormal": "rmse_of_logarithms", "poisson": "poisson_deviance", "gamma": "gamma_deviance",
    "tweedie": "tweedie_deviance",
}  # fmt: skip
"""What models minimise that learn a regression's target as of another distribution than gaussian."""

_PRIMARY = {"binary": "roc_auc", "multiclass": "log_loss", "regression": "rmse"}
_SMALLER_IS_BETTER = frozenset({"log_loss", "brier", "rmse", "mae", *DEVIANCES.values()})


def names(task: Task) -> tuple[str, ...]:
    """The metrics of a task, in the order of ``compute``."""
    return _METRICS[task]


def primary(task: Task, asked: str | None = None) -> str:
    """The metric for comparisons and for the choice of the leader: the one asked for, or the task's own."""
    return asked or _PRIMARY[task]


def greater_is_better(metric: str) -> bool:
    """True for ROC AUC and the like, and for every scorer of scikit-learn; False for losses and errors."""
    if metric in OWN:
        return metric not in _SMALLER_IS_BETTER
    if metric in METRICS.names():
        return METRICS.find(metric).greater_is_better
    check_known(metric)  # of a package that is missing, nobody knows the direction
    return True


def bounds(metric: str) -> tuple[float, float]:
    """Between which values it lies, as far as is known."""
    if metric not in OWN:
        return -math.inf, math.inf
    return (0.0, math.inf) if metric in _SMALLER_IS_BETTER else (-math.inf, 1.0)


def check_known(metric: str) -> None:
    """Raise `ConfigError` if there is no metric of this name for any task."""
    if metric in OWN or metric in METRICS.names():
        return
    from sklearn.metrics import get_scorer_names

    known = {*OWN, *METRICS.names(), *get_scorer_names()}
    if metric not in known:
        raise ConfigError(
            f"metric {metric!r}: there is none of this name.{nearest(metric, known)} Choose from "
            f"{', '.join(OWN)}, a scorer of scikit-learn, or one that another package brings."
        )


def check_installed(metric: str, run: Path) -> None:
    """Raise `ConfigError`, which names the `run`, if the package of its metric is missing here."""
    try:
        check_known(metric)
    except ConfigError:
        raise ConfigError(
            f"{run}: its metric {metric!r} is of a package that is not installed here. Install the one with "
            f"the entry point {metric!r} in sparkgpu.metrics."
        ) from None


def check_asked(metric: str, task: Task, num_classes: int) -> None:
    """Raise `ConfigError` unless `metric` can score predictions of this task."""
    if metric in _known(task):
        return
    rng = np.random.default_rng(0)
    label_N: Any = np.arange(60) % max(num_classes, 2)
    prediction = rng.dirichlet(np.ones(max(num_classes, 2)), 60)
    if task == "regression":
        label_N, prediction = rng.uniform(1, 2, 60), rng.uniform(1, 2, 60)
    try:
        if metric in OWN:
            raise ValueError("it belongs to another task")
        if value(metric, checked(task, label_N, prediction)) is None:
            raise ValueError("it gave no number")
    except Exception as error:
        raise ConfigError(
            f"metric {metric!r} cannot score a {task} ({str(error).splitlines()[0]}). Choose another, such "
            f"as {', '.join(names(task))}."
        ) from None


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


def compute(
    task: Task,
    label_N: Any,
    prediction: Any,
    weight_N: Any = None,
    *,
    asked: str | None = None,
    also: Sequence[str] = (),
) -> Metrics:
    """All metrics of the task, always with the same keys: the metric asked for, ``names(task)`` and `also`.

    ``label_N``: class codes 0..C-1, or values. ``prediction``: probabilities (N, C), two columns for binary,
    or values (N,). ``weight_N``: non-negative row weights. Raises the errors of ``rows.checked``.

    The predicted class is the most probable one, and of two equal ones that with the lower code (binary:
    class 1 above 0.5). Ranking metrics use the probability of class 1 as given; the others use rows scaled to
    sum to one; log loss is clipped (``rows.LOG_LOSS_CLIP``). A metric is None if the rows do not define it:
    deviances where a prediction is not above 0, ``roc_auc`` with one class, ``average_precision`` without a
    positive row, ``f1`` without a positive row or prediction, ``r2`` and ``spearman`` with constant labels,
    ``spearman`` with constant predictions. ``balanced_accuracy`` averages over the classes among the labels,
    ``f1_macro`` over those among labels or predictions.
    """
    rows = checked(task, label_N, prediction, weight_N)
    return {name: value(name, rows) for name in wanted(task, asked, also)}


def wanted(task: Task, asked: str | None = None, also: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of what `compute` gives."""
    return tuple(dict.fromkeys((*([asked] if asked else []), *names(task), *also)))


def value(metric: str, rows: ScoredRows) -> float | None:
    """One metric, as in `compute`."""
    if metric in _known(rows.task):
        return OWN[metric](rows)
    if metric in METRICS.names():
        function = METRICS.find(metric).loaded()
        found = function(rows.label_N, rows.prediction, rows.weight_N)
    else:
        found = _by_scorer(metric, rows)
    return float(found) if math.isfinite(found) else None


def primary_value(
    task: Task, label_N: Any, prediction: Any, weight_N: Any = None, *, asked: str | None = None
) -> float | None:
    """The primary metric alone, as `compute` gives it.

    Without scikit-learn, in a fraction of a millisecond, if it is the task's own. Raises the errors of
    ``rows.checked``.
    """
    rows = checked(task, label_N, prediction, weight_N)
    if asked not in (None, _PRIMARY[task]):
        return value(asked, rows)
    if task != "binary":
        return rmse(rows) if task == "regression" else loss(rows)
    positive_N = rows.label_N == 1
    if positive_N.all() or not positive_N.any():
        return None
    weight_N = np.ones(len(positive_N)) if rows.weight_N is None else rows.weight_N
    placed_N = placements(positive_N, rows.prediction[:, 1], weight_N)
    return float(np.average(placed_N[positive_N], weights=weight_N[positive_N]))


def mean_loss(task: Task, label_N: Any, prediction: Any, weight_N: Any = None) -> float:
    """The log loss of `compute`, or the squared error of a regression, without scikit-learn.

    Raises the errors of ``rows.checked``.
    """
    return loss(checked(task, label_N, prediction, weight_N))


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


def _known(task: Task) -> tuple[str, ...]:
    """Our own metrics of the task."""
    return (*names(task), *(DEVIANCES.values() if task == "regression" else ()))


def _by_scorer(metric: str, rows: ScoredRows) -> float:
    """What a scorer of scikit-learn says of an estimator that gives these predictions."""
    from sklearn.metrics import get_scorer

    check_known(metric)  # a package that the run had may be missing here
    weights = {} if rows.weight_N is None else {"sample_weight": rows.weight_N}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that do not define it; then it is no number
        return float(get_scorer(metric)(_given(rows), None, rows.label_N, **weights))


def _given(rows: ScoredRows) -> Any:
    """An estimator of scikit-learn that was fitted and predicts what is given."""
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    if rows.task == "regression":

        class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
            def predict(self, X: Any) -> Any:
                return rows.prediction

            def __sklearn_is_fitted__(self) -> bool:
                return True

        return Regressor()

    class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        classes_ = np.arange(rows.prediction.shape[1])

        def predict(self, X: Any) -> Any:
            return decided(rows)

        def predict_proba(self, X: Any) -> Any:
            return rows.probability_NC()

        def __sklearn_is_fitted__(self) -> bool:
            return True

    return Classifier()
