"""The check for leaks: whether one feature alone explains nearly the whole target.

"Unexplained" compares a metric with that of a model without features: the error of classes, the log loss, one
less Gini for ROC AUC, the squared error of a regression.

Limits: a feature that is rightly this strong is suspected too, and two features that give the target away
only together are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sparkgpu.core.rundir.profile import CheckResult
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import listed, metric_title, number_text
from sparkgpu.score.metrics import compute, primary, score
from sparkgpu.score.profile.columns import Column
from sparkgpu.score.profile.single_feature import Target, best_prediction
from sparkgpu.score.rows import FloatArray

_NEARLY_NOTHING = 0.03
_MOST_TRIED = 5
_WORTH_A_TRY = 0.5


def leakage(
    schema: TableSchema, columns: Sequence[Column], alone: Sequence[float | None], target: Target | None
) -> CheckResult:
    """Try the features that explain most alone; `alone` has the columns' `explained_alone`."""
    if target is None or not columns:
        return CheckResult(
            name="leakage", passed=True, evidence="Not judged: there is nothing to explain in the test rows."
        )
    metric = primary(schema.task)
    without = _values(schema, target, target.prior_NC)
    order = sorted(range(len(columns)), key=lambda place: -(alone[place] or 0.0))[:_MOST_TRIED]
    tried = {
        place: _values(schema, target, best_prediction(columns[place], target))
        for place in order
        if place == order[0] or (alone[place] or 0.0) >= _WORTH_A_TRY
    }
    shown = {
        place: f"{metric_title(metric)} {number_text(values[metric])}" for place, values in tried.items()
    }
    suspects = [
        place for place, values in tried.items() if _least_unexplained(values, without) <= _NEARLY_NOTHING
    ]
    if suspects:
        parts = (f"{columns[place].title} ({shown[place]})" for place in suspects)
        evidence = (
            f"Alone, these explain nearly all of the target on the test rows: {listed(parts)}. Each may hold "
            "the target, or be known only after it."
        )
    else:
        first = max(tried, key=lambda place: _score(metric, tried[place][metric]))
        evidence = (
            "No feature alone stands for the target. The strongest on the test rows is "
            f"{columns[first].title}, with {shown[first]}."
        )
    titles = tuple(columns[place].title for place in suspects)
    return CheckResult(name="leakage", passed=not suspects, evidence=evidence, columns=titles)


def _values(schema: TableSchema, target: Target, predicted_NC: FloatArray) -> dict[str, float | None]:
    prediction = predicted_NC if schema.classes else predicted_NC[:, 0]
    return compute(schema.task, target.test_N, prediction, target.test_weight_N)


def _score(metric: str, value: float | None) -> float:
    return -math.inf if value is None else score(metric, value)


def _least_unexplained(values: Mapping[str, float | None], without: Mapping[str, float | None]) -> float:
    """The smallest part of the target that a model leaves unexplained by any of its metrics."""
    area = values.get("roc_auc")
    left = [] if area is None else [2 * (1 - area)]
    for metric in ("accuracy", "rmse", *(() if "roc_auc" in values else ("log_loss",))):
        value, plain = values.get(metric), without.get(metric)
        if value is None or plain is None:
            continue
        if metric == "accuracy":
            value, plain = 1 - value, 1 - plain
        if plain:
            left.append((value / plain) ** 2 if metric == "rmse" else value / plain)
    return min(left, default=1.0)
