"""The check for leaks: whether one feature alone reaches nearly the whole score.

A feature is suspected if it leaves almost nothing of the target unexplained, or little and hardly more than
the best model of the run. "Unexplained" compares a metric with that of a model without features: the error of
classes, the log loss, one less Gini for ROC AUC, the squared error of a regression.

Limits: a feature that is rightly this strong is suspected too, and two features that give the target away
only together are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sparkgpu.core.rundir.metrics_json import MetricValues, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.profile import CheckResult
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import listed, metric_title, number_text
from sparkgpu.score.metrics import best, compute, primary, score
from sparkgpu.score.profile.columns import Column
from sparkgpu.score.profile.single_feature import Target, best_prediction
from sparkgpu.score.rows import FloatArray

_NEARLY_NOTHING = 0.03
_LITTLE = {"roc_auc": 0.10, "log_loss": 0.10, "rmse": 0.10, "accuracy": 0.05}
_NEAR_THE_BEST = 1.5
_SLACK = 0.005
_MOST_TRIED = 5
_WORTH_A_TRY = 0.5


def leakage(
    paths: RunPaths,
    schema: TableSchema,
    columns: Sequence[Column],
    alone: Sequence[float | None],
    target: Target | None,
) -> CheckResult:
    """Try the features that explain most alone; `alone` has the columns' `explained_alone`."""
    if target is None or not columns:
        return CheckResult(
            name="leakage", passed=True, evidence="Not judged: there is nothing to explain in the test rows."
        )
    metric = primary(schema.task)
    reached = _best_model(paths, metric)
    without = _values(schema, target, target.prior_NC)
    order = sorted(range(len(columns)), key=lambda place: -(alone[place] or 0.0))[:_MOST_TRIED]
    tried = {
        place: _values(schema, target, best_prediction(columns[place], target))
        for place in order
        if place == order[0] or (alone[place] or 0.0) >= _WORTH_A_TRY
    }
    title = metric_title(metric)
    goal = f"; the best model of the run has {number_text(reached[metric])}" if reached else ""
    shown = {place: f"{title} {number_text(values[metric])}" for place, values in tried.items()}
    of_best = _unexplained(reached, without)
    suspects = [
        place for place, values in tried.items() if _is_suspect(_unexplained(values, without), of_best)
    ]
    if suspects:
        parts = (f"{columns[place].title} ({shown[place]})" for place in suspects)
        evidence = (
            f"Alone, these explain nearly all of the target on the test rows: {listed(parts)}{goal}. Each "
            "may hold the target, or be known only after it."
        )
    else:
        first = max(tried, key=lambda place: _score(metric, tried[place][metric]))
        evidence = (
            "No feature alone stands for the target. The strongest on the test rows is "
            f"{columns[first].title}, with {shown[first]}{goal}."
        )
    titles = tuple(columns[place].title for place in suspects)
    told = 1 - min(min(_unexplained(values, without).values(), default=1.0) for values in tried.values())
    return CheckResult(
        name="leakage", passed=not suspects, evidence=evidence, columns=titles, value=told,
        bound=1 - _NEARLY_NOTHING,
    )  # fmt: skip


def _values(schema: TableSchema, target: Target, predicted_NC: FloatArray) -> MetricValues:
    prediction = predicted_NC if schema.classes else predicted_NC[:, 0]
    return compute(schema.task, target.test_N, prediction, target.test_weight_N)


def _score(metric: str, value: float | None) -> float:
    return -math.inf if value is None else score(metric, value)


def _best_model(paths: RunPaths, metric: str) -> MetricValues:
    """The test metrics of the run's best model; empty before there are results."""
    models = read_results(paths).models if paths.metrics.is_file() else ()
    tests = {model.name: model.metrics.test for model in models}
    leaders = best(metric, {name: values.get(metric) for name, values in tests.items()})
    return tests[leaders[0]] if leaders else {}


def _is_suspect(left: Mapping[str, float], of_best: Mapping[str, float]) -> bool:
    def is_near(metric: str) -> bool:
        return metric in of_best and left[metric] <= min(
            _LITTLE[metric], _NEAR_THE_BEST * of_best[metric] + _SLACK
        )

    return any(share <= _NEARLY_NOTHING or is_near(metric) for metric, share in left.items())


def _unexplained(values: MetricValues, without: MetricValues) -> dict[str, float]:
    """By metric, the part of the target that a model leaves unexplained."""
    found = {}
    for metric in ("roc_auc", "accuracy", "rmse", *(() if "roc_auc" in without else ("log_loss",))):
        value, plain = values.get(metric), without.get(metric)
        if value is None or plain is None:
            continue
        if metric in ("roc_auc", "accuracy"):
            value, plain = 1 - value, 1 - plain
        if plain:
            found[metric] = (value / plain) ** 2 if metric == "rmse" else value / plain
    return found
