"""What the mean predictions of a run's models give: blend and gains, calibration, pairs to compare.

With folds, each row outside the test split has the prediction of the trials that did not train on it. Rows
whose trials all failed take no part in the blend's weights or in validation figures. N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.plan.trials import TUNED
from sparkgpu.core.rundir.metrics_json import (
    CalibrationResult,
    DecisionResult,
    FoldsResult,
    PairResult,
    SplitMetrics,
)
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.score import blend, compare, decision, metrics
from sparkgpu.score.calibration import brier_score, calibration_error, scaled, temperature
from sparkgpu.score.over_folds import difference_over_folds
from sparkgpu.score.predictions import LabelReader, Labels, Mean
from sparkgpu.score.rows import FloatArray, Task, checked


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A model's mean predictions of all validation and test rows; `has_valid_N` tells which rows have one."""

    valid: FloatArray
    test: FloatArray
    has_valid_N: NDArray[np.bool_]


def comparable(pooled: Mapping[str, Pooled]) -> dict[str, Pooled]:
    """The models, each with the validation rows that all of them predicted.

    Else folds that failed, or that found no time, would be easy or hard rows of some models alone. A model
    that shares no row with those that predicted more is left out.
    """
    known_N: NDArray[np.bool_] | None = None
    kept = set()
    for name, model in sorted(pooled.items(), key=lambda item: -int(item[1].has_valid_N.sum())):
        both_N = model.has_valid_N if known_N is None else known_N & model.has_valid_N
        if both_N.any():
            known_N = both_N
            kept.add(name)
    return {
        name: replace(model, has_valid_N=known_N)
        for name, model in pooled.items()
        if name in kept and known_N is not None
    }


def mix(schema: TableSchema, valid: Labels, pooled: Mapping[str, Pooled]) -> tuple[dict[str, float], Pooled]:
    """The blend of several models, with its weights from the validation rows.

    The weights minimise the loss, whatever the run's metric is: by that, a member may be ahead of the blend
    there, and then leads the run.
    """
    task = schema.task
    has_valid_N = np.logical_and.reduce([found.has_valid_N for found in pooled.values()])
    rows = valid.part(has_valid_N)
    members = {name: found.valid[has_valid_N] for name, found in pooled.items()}
    weights = blend.blend_weights(task, rows.label_N, members, weight_N=rows.weight_N)
    mixed = Pooled(
        valid=blend.blend({name: found.valid for name, found in pooled.items()}, weights),
        test=blend.blend({name: found.test for name, found in pooled.items()}, weights),
        has_valid_N=has_valid_N,
    )
    return weights, mixed


def gains(
    schema: TableSchema, valid: Labels, pooled: Mapping[str, Pooled], weights: Mapping[str, float]
) -> dict[str, float]:
    """What each member adds to a blend: the gain in the primary metric over the blend of the others.

    On the validation rows, which also fitted both blends; positive is better for every metric.
    """
    task = schema.task
    used = [name for name, weight in weights.items() if weight]
    has_valid_N = np.logical_and.reduce([found.has_valid_N for found in pooled.values()])
    rows = valid.part(has_valid_N)
    members = {name: pooled[name].valid[has_valid_N] for name in used}
    metric = metrics.primary(task, schema.metric)

    def value(of_members: Mapping[str, FloatArray], shares: Mapping[str, float]) -> float:
        mixed = blend.blend(of_members, shares)
        return metrics.score(metric, _value(schema, rows, mixed) or 0.0)

    whole = value(members, {name: weights[name] for name in used})
    added = {}
    for name in used if len(used) > 1 else ():
        rest = {other: found for other, found in members.items() if other != name}
        without = blend.blend_weights(task, rows.label_N, rest, weight_N=rows.weight_N)
        added[name] = whole - value(rest, without)
    return added


def _value(schema: TableSchema, rows: Labels, prediction: FloatArray) -> float | None:
    metric = metrics.primary(schema.task, schema.metric)
    return metrics.value(metric, checked(schema.task, rows.label_N, prediction, rows.weight_N))


class Calibration:
    """The calibration of one model, whose predictions are the mean over its trials; only sums are kept."""

    def __init__(self, task: Task, test: Labels) -> None:
        self._task = task
        self._test = test
        self._temperatures: list[float] = []
        self._before = Mean(test)
        self._after = Mean(test)

    def add(self, temperature_: float, test_NC: FloatArray) -> None:
        """Add a trial: its temperature, and its probabilities of the test rows before it is applied."""
        self._temperatures.append(temperature_)
        self._before.add(self._test, test_NC)
        self._after.add(self._test, scaled(test_NC, temperature_))

    def fit(self, valid: Labels, valid_NC: FloatArray, test_NC: FloatArray) -> None:
        """Add a trial with the temperature that fits the validation rows best."""
        self.add(temperature(self._task, valid.label_N, valid_NC, valid.weight_N), test_NC)

    def result(self, *, applied: bool) -> CalibrationResult:
        task, test = self._task, self._test
        before_NC, after_NC = self._before.value(), self._after.value()
        return CalibrationResult(
            temperature=float(np.mean(self._temperatures)),
            error_before=calibration_error(task, test.label_N, before_NC, test.weight_N),
            error_after=calibration_error(task, test.label_N, after_NC, test.weight_N),
            brier_before=brier_score(task, test.label_N, before_NC, test.weight_N),
            brier_after=brier_score(task, test.label_N, after_NC, test.weight_N),
            applied=applied,
        )


def decide(
    schema: TableSchema, valid: Labels, test: Labels, pooled: Pooled, seed: int
) -> DecisionResult | None:
    """What the asked-for rule of decisions makes of a model's probabilities."""
    rule = schema.decision
    if rule is None:
        return None
    rows, found_NC = valid.part(pooled.has_valid_N), pooled.valid[pooled.has_valid_N]
    threshold = decision.chosen_threshold(rule, rows.label_N, found_NC, rows.weight_N)
    found = decision.effect(rule, threshold, test.label_N, pooled.test, test.weight_N, seed=seed)
    return DecisionResult(
        rule=rule.rule, positive=None if threshold is None else schema.classes[rule.positive],
        threshold=threshold, goal=decision.goal(rule, schema.classes),
        value=found.value, plain=found.plain,
        ci95=found.ci95,
    )  # fmt: skip


BRANCHES = ("trees", "neural")  # of every run, trained or not


def compare_pairs(
    schema: TableSchema,
    labels: LabelReader,
    pooled: Mapping[str, Pooled],
    first: str | None,
    seed: int,
    averaged: Mapping[str, SplitMetrics],
) -> tuple[PairResult, ...]:
    """Compare the averaged predictions of `pooled`; `first` is the best model on the validation rows.

    Their metrics are `averaged`, of all rows also where `labels` holds a sample of them.
    """
    pairs, test = [], labels.all("test")
    for a, b in _paired(tuple(pooled), first):
        found = compare.compare(
            schema.task, test.label_N, pooled[a].test, pooled[b].test, seed,
            weight_N=test.weight_N, asked=schema.metric,
        )  # fmt: skip
        if "test" in labels.samples:
            value_a, value_b = (averaged[name].test[found.metric] for name in (a, b))
            found = found.of_more_rows(value_a, value_b, labels.every["test"])
        pairs.append(
            PairResult(
                a=a,
                b=b,
                difference=found.difference,
                ci95=found.ci95,
                verdict=found.verdict,
                method=found.method,
                sentence=found.sentence(a, b),
                over_folds=_over_folds(schema, labels, pooled[a], pooled[b]),
            )
        )
    return tuple(pairs)


def _over_folds(schema: TableSchema, labels: LabelReader, a: Pooled, b: Pooled) -> FoldsResult | None:
    """The difference of two models in each fold whose rows both predicted."""
    metric = metrics.primary(schema.task, schema.metric)
    row_id_N = labels.all("valid").row_id_N
    differences = []
    for fold in range(schema.folds or 0):
        rows = labels.of("valid", fold)
        place_M = np.searchsorted(row_id_N, rows.row_id_N)
        if not (a.has_valid_N & b.has_valid_N)[place_M].all():
            continue
        values = [_value(schema, rows, found.valid[place_M]) for found in (a, b)]
        if values[0] is not None and values[1] is not None:
            differences.append(values[0] - values[1])
    if not differences:
        return None
    mean, ends = difference_over_folds(differences)
    ahead = sum(metrics.score(metric, difference) > 0 for difference in differences)
    return FoldsResult(folds=len(differences), ahead=ahead, difference=mean, ci95=ends)


def _paired(models: Sequence[str], first: str | None) -> Iterator[tuple[str, str]]:
    """Trees with network, searched settings with defaults, the best with every other, the blend with each."""
    own = [name for name in models if name in BRANCHES]
    alone = [name for name in models if name != "blend"]
    against_first = ((first, name) for name in alone if first is not None and name != first)
    tuned = ((name, name.removesuffix(TUNED)) for name in alone if name.removesuffix(TUNED) != name)
    seen: set[frozenset[str]] = set()
    for a, b in (*combinations(own, 2), *tuned, *against_first, *(("blend", name) for name in alone)):
        if {a, b} <= set(models) and frozenset((a, b)) not in seen:
            seen.add(frozenset((a, b)))
            yield a, b
