"""Decisions from probabilities: by a threshold that validation rows chose, or by what errors cost.

With two classes a rule chooses the threshold of the probability of the positive class. With several, a matrix
of costs decides for the class with the least expected cost, and nothing has to be chosen. N rows, C classes,
T thresholds, P places between them, R replicates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.config.rule_keys import DecisionConfig
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.table.schema import DecisionRule
from sparkgpu.core.words import listed, nearest
from sparkgpu.score.compare import Interval
from sparkgpu.score.rows import FloatArray, IntArray

_AT_LEAST = re.compile(r"(recall|precision)\s*>=\s*(0?\.\d+|0|1(?:\.0*)?)")
_PLAIN = ("f1", "accuracy", "balanced_accuracy")
_REPLICATES = 1000
_CURVE = 101

Counts = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""True positives, false positives, false negatives and true negatives, by weight."""


def rule_of(config: DecisionConfig, classes: tuple[str, ...]) -> DecisionRule | None:
    """The rule that a configuration asks for. Raises `ConfigError` if it does not fit the classes."""
    rule, costs, positive = config.rule, config.costs, config.positive
    if config == DecisionConfig():
        return None
    if not classes:
        raise ConfigError("[decision] is for classes, and this target is a number. Leave it out.")
    if rule is None and not costs:
        raise ConfigError(f"decision.positive = {positive!r} alone decides nothing. Add decision.rule.")
    rule = (rule or "cost").replace(" ", "")
    if rule == "cost" and positive is not None:
        raise ConfigError(
            "decision.positive has no meaning for costs, which name both classes. Leave it out."
        )
    if rule == "cost":
        return DecisionRule(rule=rule, costs=_matrix(costs, classes))
    if costs:
        raise ConfigError(f"decision.rule {rule!r} does not use decision.costs. Leave one of both out.")
    if len(classes) > 2:
        raise ConfigError(
            f"decision.rule {rule!r} is for two classes; with {len(classes)} give decision.costs."
        )
    if rule not in _PLAIN and not _AT_LEAST.fullmatch(rule):
        raise ConfigError(
            f"decision.rule {rule!r}: choose from {', '.join(_PLAIN)}, recall>=0.8, precision>=0.9 "
            "(or another share), or cost with decision.costs."
        )
    if positive is not None and positive not in classes:
        raise ConfigError(
            f"decision.positive = {positive!r}: no such class.{nearest(positive, classes)} There are "
            f"{listed(classes)}."
        )
    return DecisionRule(rule=rule, positive=1 if positive is None else classes.index(positive))


def _matrix(
    costs: Mapping[str, Mapping[str, float]], classes: tuple[str, ...]
) -> tuple[tuple[float, ...], ...]:
    """The cost of each decision (column) for each true class (row); 0 where nothing is said."""
    named = {*costs, *(name for row in costs.values() for name in row)}
    if unknown := sorted(named - set(classes)):
        raise ConfigError(f"decision.costs: {listed(unknown)}: no such class. There are {listed(classes)}.")
    rows = tuple(tuple(float(costs.get(true, {}).get(name, 0.0)) for name in classes) for true in classes)
    if not costs or any(not math.isfinite(cost) for row in rows for cost in row):
        raise ConfigError(
            "decision.costs: give finite costs by true class, then by decision, such as "
            f'{{"{classes[-1]}" = {{"{classes[0]}" = 5}}, "{classes[0]}" = {{"{classes[-1]}" = 1}}}}.'
        )
    return rows


def decided(rule: DecisionRule | None, threshold: float | None, probability_NC: FloatArray) -> IntArray:
    """The class (N,) to decide for: the most probable one without a rule."""
    if threshold is not None and rule is not None:
        is_positive_N = probability_NC[:, rule.positive] >= threshold
        return np.where(is_positive_N, rule.positive, 1 - rule.positive)
    if rule is not None and rule.costs:
        return np.asarray((probability_NC @ np.array(rule.costs)).argmin(axis=1))
    return np.asarray(probability_NC.argmax(axis=1))


def chosen_threshold(
    rule: DecisionRule, label_N: Any, probability_NC: FloatArray, weight_N: Any = None
) -> float | None:
    """The threshold that the rule chooses on these rows; None with more than two classes.

    It lies between two probabilities that occur. A rule that no threshold fulfils (``recall>=0.9`` always can
    be) gets the one that comes nearest to it.
    """
    if probability_NC.shape[1] > 2:
        return None
    is_positive_N = np.asarray(label_N) == rule.positive
    threshold_T, counts = _by_threshold(is_positive_N, probability_NC[:, rule.positive], weight_N)
    value_T = np.nan_to_num(_value(rule)(counts), nan=-np.inf)
    best_T = np.flatnonzero(value_T >= value_T.max() - 1e-12 * max(1.0, abs(float(value_T.max()))))
    return float(threshold_T[best_T[np.argmin(np.abs(threshold_T[best_T] - 0.5))]])


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a rule's decisions are worth, beside the most probable class on the same rows.

    `value` and `plain` are the mean cost, or what the rule maximises; `ci95` is of `value` minus `plain`.
    """

    value: float | None
    plain: float | None
    ci95: Interval


def effect(
    rule: DecisionRule,
    threshold: float | None,
    label_N: Any,
    probability_NC: FloatArray,
    weight_N: Any = None,
    *,
    seed: int,
) -> Effect:
    """The effect of a rule on rows that did not choose its threshold."""
    label_N = np.asarray(label_N, dtype=np.int64)
    weight_N = np.ones(len(label_N)) if weight_N is None else np.asarray(weight_N, dtype=np.float64)
    ways = (decided(rule, threshold, probability_NC), decided(None, None, probability_NC))
    if rule.costs:
        cost_CC = np.array(rule.costs)
        cost_NW = np.stack([cost_CC[label_N, way_N] for way_N in ways], axis=1)
        value, plain = np.average(cost_NW, axis=0, weights=weight_N)
        gain_N = cost_NW[:, 0] - cost_NW[:, 1] - (value - plain)
        half = 1.959964 * math.sqrt(float(np.sum((weight_N * gain_N) ** 2))) / float(weight_N.sum())
        return Effect(
            value=float(value), plain=float(plain), ci95=(value - plain - half, value - plain + half)
        )
    # Rows with the same label and decisions are alike: a sample of rows is a sample of eight counts.
    is_positive_N, *chosen = (found_N == rule.positive for found_N in (label_N, *ways))
    cell_N = is_positive_N * 4 + chosen[0] * 2 + chosen[1]
    share_8, drawn_R8 = _resampled(np.bincount(cell_N, weights=weight_N, minlength=8), weight_N, seed)
    values = [_reached(rule, share_8[None]), _reached(rule, drawn_R8)]
    value, plain = (float(found[0]) for found in values[0])
    differences = values[1][0] - values[1][1]
    if not np.isfinite([value, plain]).all() or np.isnan(differences).mean() > 0.05:
        return Effect(value=_finite(value), plain=_finite(plain), ci95=(None, None))
    low, high = np.nanquantile(differences, [0.025, 0.975])
    return Effect(value=value, plain=plain, ci95=(float(low), float(high)))


def curve(
    rule: DecisionRule, label_N: Any, probability_NC: FloatArray, weight_N: Any = None, *, seed: int
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Thresholds (T,) from 0 to 1, and at each what the rule is about: the mean cost, or F1 and its parts.

    Each is (3, T): the value and the ends of its 95 % interval, pointwise; NaN where there is none.
    """
    at_T = np.linspace(0.0, 1.0, _CURVE)
    label_N = (np.asarray(label_N) == rule.positive).astype(np.int64)
    weight_N = np.ones(len(label_N)) if weight_N is None else np.asarray(weight_N, dtype=np.float64)
    places = _CURVE + 1
    place_N = np.searchsorted(
        at_T, probability_NC[:, rule.positive], side="right"
    )  # so many thresholds are reached
    weight_P2 = np.bincount(label_N * places + place_N, weights=weight_N, minlength=2 * places)
    share, drawn_R = _resampled(weight_P2, weight_N, seed)
    share_R2P = np.concatenate([share[None], drawn_R]).reshape(-1, 2, places)
    reached_R2T = share_R2P[:, :, ::-1].cumsum(axis=2)[:, :, ::-1][:, :, 1:]
    fp, tp = reached_R2T[:, 0], reached_R2T[:, 1]
    tn, fn = (share_R2P[:, label].sum(axis=1, keepdims=True) - reached_R2T[:, label] for label in (0, 1))
    goal_of = _value(rule)((tp, fp, fn, tn))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = {"precision": tp / (tp + fp), "recall": tp / (tp + fn), "F1": 2 * tp / (2 * tp + fp + fn)}
    if rule.costs:
        found = {"mean cost": -goal_of}
    elif rule.rule in ("accuracy", "balanced_accuracy"):
        found = {rule.rule.replace("_", " "): goal_of}
    return at_T, {
        name: np.stack([of_RT[0], *np.quantile(of_RT[1:], [0.025, 0.975], axis=0)])
        for name, of_RT in found.items()
    }


def _resampled(cell_weight: NDArray[Any], weight_N: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """The shares of cells of alike rows, and those in replicates of as many rows as the weights are worth."""
    share = cell_weight / cell_weight.sum()
    rows = round(float(weight_N.sum() ** 2 / (weight_N**2).sum()))
    return share, np.random.default_rng(seed).multinomial(rows, share, size=_REPLICATES) / rows


def goal(rule: DecisionRule, classes: Sequence[str]) -> str:
    """What `Effect.value` is called."""
    name = re.split("[>=]", rule.rule)[0]
    if name in ("f1", "recall", "precision"):
        return f"{'F1' if name == 'f1' else name} of {classes[rule.positive]}"
    return "mean cost" if name == "cost" else name.replace("_", " ")


def _by_threshold(label_N: Any, positive_N: FloatArray, weight_N: Any) -> tuple[FloatArray, Counts]:
    """Thresholds (T,) from the highest down, and the counts of deciding for positive from each on."""
    label_N = np.asarray(label_N, dtype=np.int64)
    weight_N = np.ones(len(label_N)) if weight_N is None else np.asarray(weight_N, dtype=np.float64)
    value_G, group_N = np.unique(-positive_N, return_inverse=True)
    yes_G = np.bincount(group_N, weights=weight_N * (label_N == 1), minlength=len(value_G))
    no_G = np.bincount(group_N, weights=weight_N * (label_N == 0), minlength=len(value_G))
    tp, fp = np.concatenate([[0.0], np.cumsum(yes_G)]), np.concatenate([[0.0], np.cumsum(no_G)])
    value_G = -value_G
    between = (value_G[:-1] + value_G[1:]) / 2
    threshold_T = np.concatenate([[(1.0 + value_G[0]) / 2 + 1e-9], between, [value_G[-1] / 2]])
    return threshold_T, (tp, fp, tp[-1] - tp, fp[-1] - fp)


def _value(rule: DecisionRule) -> Callable[[Counts], FloatArray]:
    """What the rule maximises."""
    if rule.costs:
        (true_no, false_yes), (false_no, true_yes) = rule.costs
        return lambda found: (
            -(true_yes * found[0] + false_yes * found[1] + false_no * found[2] + true_no * found[3])
        )
    if match := _AT_LEAST.fullmatch(rule.rule):
        bounded, least = match[1], float(match[2])

        def value(found: Counts) -> FloatArray:
            tp, fp, fn, _ = found
            with np.errstate(invalid="ignore", divide="ignore"):
                recall, precision = tp / (tp + fn), np.where(tp + fp > 0, tp / (tp + fp), 1.0)
            held, other = (recall, precision) if bounded == "recall" else (precision, recall)
            return np.where(held >= least, 1.0 + other, held)  # else as near as possible

        return value

    def plain(found: Counts) -> FloatArray:
        tp, fp, fn, tn = found
        with np.errstate(invalid="ignore", divide="ignore"):
            if rule.rule == "f1":
                return np.asarray(2 * tp / (2 * tp + fp + fn))
            if rule.rule == "accuracy":
                return np.asarray((tp + tn) / (tp + fp + fn + tn))
            return np.asarray((tp / (tp + fn) + tn / (tn + fp)) / 2)

    return plain


def _reached(rule: DecisionRule, share_R8: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What the figures of `goal` are by the rule's decisions and by the most probable class, (R,) each."""
    cells = share_R8.reshape(-1, 2, 2, 2)  # label, the rule's decision, the plain one
    found = []
    for axis in (3, 2):
        table = cells.sum(axis=axis)
        tp, fp, fn, tn = table[:, 1, 1], table[:, 0, 1], table[:, 1, 0], table[:, 0, 0]
        with np.errstate(invalid="ignore", divide="ignore"):
            if match := _AT_LEAST.fullmatch(rule.rule):
                found.append(tp / (tp + fn) if match[1] == "recall" else tp / (tp + fp))
            else:
                found.append(_value(rule)((tp, fp, fn, tn)))
    return found[0], found[1]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
