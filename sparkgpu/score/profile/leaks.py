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
from typing import cast

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.profile import CheckResult
from sparkgpu.core.rundir.results import read_results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import listed, metric_title, number_text
from sparkgpu.score.metrics import best, compute, primary, score
from sparkgpu.score.profile.columns import Column
from sparkgpu.score.profile.single_feature import Target, best_prediction
from sparkgpu.score.rows import FloatArray

_NEARLY_NOTHING = 0.03
_LITTLE = {"accuracy": 0.05}
_LITTLE_OTHERWISE = 0.10
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
    reached = _best_models(paths, schema)
    without = _values(schema, target, target.prior_NC)
    order = sorted(range(len(columns)), key=lambda place: -(alone[place] or 0.0))[:_MOST_TRIED]
    tried = {
        place: _values(schema, target, best_prediction(columns[place], target))
        for place in order
        if place == order[0] or (alone[place] or 0.0) >= _WORTH_A_TRY
    }
    suspects = [place for place, values in tried.items() if _is_suspect(values, without, reached)]
    title = metric_title(metric)
    goal = f"; the best model of the run has {number_text(reached[metric])}" if metric in reached else ""
    shown = {place: f"{title} {number_text(values[metric])}" for place, values in tried.items()}
    if suspects:
        parts = (f"{columns[place].title} ({shown[place]})" for place in suspects)
        evidence = (
            f"Alone, these explain nearly all of the target on the test rows: {listed(parts)}{goal}. Each "
            "may hold the target, or be known only after it."
        )
    else:
        first = max(tried, key=lambda place: _score(metric, tried[place][metric]))
        evidence = (
            f"No feature alone stands for the target. The strongest on the test rows is "
            f"{columns[first].title}, with {shown[first]}{goal}."
        )
    titles = tuple(columns[place].title for place in suspects)
    return CheckResult(name="leakage", passed=not suspects, evidence=evidence, columns=titles)


def _values(schema: TableSchema, target: Target, predicted_NC: FloatArray) -> dict[str, float | None]:
    prediction = predicted_NC if schema.classes else predicted_NC[:, 0]
    return compute(schema.task, target.test_N, prediction, target.test_weight_N)


def _score(metric: str, value: float | None) -> float:
    return -math.inf if value is None else score(metric, value)


def _best_models(paths: RunPaths, schema: TableSchema) -> dict[str, float]:
    """The best test value of each metric over the run's models; empty without ``metrics.json``."""
    if not paths.metrics.is_file():
        return {}
    models = read_results(paths).models
    found = {}
    for metric in (primary(schema.task), "accuracy"):
        values = {model.name: model.metrics.test.get(metric) for model in models}
        if leaders := best(metric, values):
            found[metric] = cast(float, values[leaders[0]])
    return found


def _is_suspect(
    values: Mapping[str, float | None], without: Mapping[str, float | None], reached: Mapping[str, float]
) -> bool:
    for metric in ("roc_auc", "log_loss", "accuracy", "rmse"):
        left = _unexplained(metric, values.get(metric), without.get(metric))
        if left is None or (metric == "log_loss" and "roc_auc" in values):
            continue
        if left <= _NEARLY_NOTHING:
            return True
        of_best = _unexplained(metric, reached.get(metric), without.get(metric))
        near = of_best is not None and left <= _NEAR_THE_BEST * of_best + _SLACK
        if near and left <= _LITTLE.get(metric, _LITTLE_OTHERWISE):
            return True
    return False


def _unexplained(metric: str, value: float | None, without: float | None) -> float | None:
    """The part of the target that a model with this value leaves unexplained; None if it is not defined."""
    if value is None or without is None:
        return None
    if metric == "roc_auc":
        return 2 * (1 - value)
    if metric == "accuracy":
        return (1 - value) / (1 - without) if without < 1 else None
    if not without:
        return None
    return (value / without) ** 2 if metric == "rmse" else value / without
