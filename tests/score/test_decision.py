"""Which class a probability becomes: by a threshold that validation rows chose, or by costs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

from sparkgpu.core.config.rule_keys import DecisionConfig
from sparkgpu.core.errors import ConfigError
from sparkgpu.score.decision import chosen_threshold, curve, decided, effect, goal, rule_of

CLASSES = ("no", "yes")
COSTS = {"yes": {"no": 5.0}, "no": {"yes": 1.0}}


def drawn(rows: int, seed: int = 0, share: float = 0.2):
    """Labels and calibrated probabilities."""
    rng = np.random.default_rng(seed)
    positive_N = rng.beta(share * 2, (1 - share) * 2, rows)
    return (rng.random(rows) < positive_N).astype(np.int64), np.stack([1 - positive_N, positive_N], axis=1)


def cost(label_N, decided_N) -> float:
    return float(np.mean(np.where(label_N == 1, 5.0 * (decided_N == 0), 1.0 * (decided_N == 1))))


def best_by_hand(label_N, probability_NC, value) -> float:
    """The best value over all thresholds, tried one by one."""
    positive_N = probability_NC[:, 1]
    return max(value(label_N, (positive_N >= at).astype(int)) for at in [*np.unique(positive_N), 1.1])


def test_f1_and_costs_are_as_good_as_the_best_threshold_of_all():
    label_N, probability_NC = drawn(100)
    rule = rule_of(DecisionConfig(rule="f1", costs={}), CLASSES)
    decided_N = decided(rule, chosen_threshold(rule, label_N, probability_NC), probability_NC)
    assert f1_score(label_N, decided_N) == pytest.approx(best_by_hand(label_N, probability_NC, f1_score))
    label_N, probability_NC = drawn(400)
    rule = rule_of(DecisionConfig(rule=None, costs=COSTS), CLASSES)
    threshold = chosen_threshold(rule, label_N, probability_NC)
    decided_N = decided(rule, threshold, probability_NC)
    least = -best_by_hand(label_N, probability_NC, lambda label_N, found_N: -cost(label_N, found_N))
    assert cost(label_N, decided_N) == pytest.approx(least)
    assert threshold == pytest.approx(1 / 6, abs=0.1)  # calibrated: cost of a false yes over both costs


def test_the_positive_class_is_the_one_that_was_named():
    label_N, probability_NC = drawn(400)
    for name, code in (("yes", 1), ("no", 0)):
        rule = rule_of(DecisionConfig(rule="recall>=0.9", positive=name), CLASSES)
        threshold = chosen_threshold(rule, label_N, probability_NC)
        decided_N = decided(rule, threshold, probability_NC)
        assert recall_score(label_N, decided_N, pos_label=code) >= 0.9
        seen = effect(rule, threshold, label_N, probability_NC, seed=7)
        assert seen.value == pytest.approx(recall_score(label_N, decided_N, pos_label=code))
        _, values = curve(rule, label_N, probability_NC, seed=7)
        above_N = np.where(probability_NC[:, code] >= 0.3, code, 1 - code)
        assert values["recall"][0][30] == pytest.approx(recall_score(label_N, above_N, pos_label=code))
        assert goal(rule, CLASSES) == f"recall of {name}"


@pytest.mark.parametrize("least", [0.5, 0.8, 1.0])
def test_a_recall_is_reached_with_the_highest_precision(least):
    label_N, probability_NC = drawn(100)
    rule = rule_of(DecisionConfig(rule=f"recall >= {least}", costs={}), CLASSES)
    decided_N = decided(rule, chosen_threshold(rule, label_N, probability_NC), probability_NC)
    assert recall_score(label_N, decided_N) >= least

    def value(label_N, found_N):
        return precision_score(label_N, found_N) if recall_score(label_N, found_N) >= least else -1.0

    assert precision_score(label_N, decided_N) == pytest.approx(best_by_hand(label_N, probability_NC, value))


def test_costs_of_several_classes_decide_for_the_least_expected_one():
    rng = np.random.default_rng(0)
    probability_NC = rng.dirichlet(np.ones(3), 500)
    rule = rule_of(
        DecisionConfig(rule=None, costs={"a": {"b": 1, "c": 9}, "b": {"a": 1}, "c": {"a": 2, "b": 2}}),
        ("a", "b", "c"),
    )
    cost_CC = np.array([[0, 1, 9], [1, 0, 0], [2, 2, 0]])
    expected_N = [min(range(3), key=lambda name: row @ cost_CC[:, name]) for row in probability_NC]
    assert decided(rule, None, probability_NC).tolist() == expected_N


@pytest.mark.parametrize("rule", ["f1", "recall>=0.9", "cost"])
def test_the_effect_on_other_rows_is_what_the_decisions_give_with_its_interval(rule):
    found = rule_of(DecisionConfig(rule=rule, costs=COSTS if rule == "cost" else {}), CLASSES)
    valid, test = drawn(2000, 1), drawn(2000, 2)
    threshold = chosen_threshold(found, *valid)
    seen = effect(found, threshold, *test, seed=7)
    value = {"f1": f1_score, "recall>=0.9": recall_score, "cost": cost}[rule]
    ways = [decided(found, threshold, test[1]), test[1].argmax(axis=1)]
    assert [seen.value, seen.plain] == pytest.approx([value(test[0], way_N) for way_N in ways])
    low, high = seen.ci95
    assert low < seen.value - seen.plain < high
    assert (high < 0) if rule == "cost" else (low > 0)  # plainly better than the most probable class


def test_the_curve_holds_the_value_at_each_threshold():
    label_N, probability_NC = drawn(300)
    at_T, values = curve(
        rule_of(DecisionConfig(rule=None, costs=COSTS), CLASSES), label_N, probability_NC, seed=7
    )
    for place in (0, 20, 50, 100):
        expected = cost(label_N, (probability_NC[:, 1] >= at_T[place]).astype(int))
        value, low, high = values["mean cost"][:, place]
        assert value == pytest.approx(expected)
        assert low <= value <= high


def test_the_interval_of_the_curve_holds_what_many_rows_give_in_95_of_100_samples():
    rule = rule_of(DecisionConfig(rule=None, costs=COSTS), CLASSES)
    true_T = curve(rule, *drawn(200_000, 99), seed=7)[1]["mean cost"][0]
    samples = [curve(rule, *drawn(500, seed), seed=7)[1]["mean cost"] for seed in range(100)]
    held_T = np.mean([(low_T <= true_T) & (true_T <= high_T) for _, low_T, high_T in samples], axis=0)
    assert held_T[10:90].min() > 0.85
    assert held_T[10:90].mean() == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize(
    ("rule", "costs", "classes", "words"),
    [
        ("f1", {}, (), "this target is a number"),
        ("f1", {}, ("a", "b", "c"), "is for two classes"),
        ("f2", {}, CLASSES, "choose from f1"),
        ("recall>=2", {}, CLASSES, "choose from f1"),
        ("cost", {}, CLASSES, "by true class, then by decision"),
        (None, {"maybe": {"no": 1}}, CLASSES, "no such class"),
        ("f1", COSTS, CLASSES, "does not use decision.costs"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused(rule, costs, classes, words):
    with pytest.raises(ConfigError, match=words):
        rule_of(DecisionConfig(rule=rule, costs=costs), classes)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"rule": "f1", "positive": "yess"}, "Did you mean 'yes'"),
        ({"positive": "yes"}, "Add decision.rule"),
        ({"costs": COSTS, "positive": "yes"}, "no meaning for costs"),
    ],
)
def test_a_positive_class_that_does_not_fit_is_refused(config, words):
    with pytest.raises(ConfigError, match=words):
        rule_of(DecisionConfig(**config), CLASSES)
