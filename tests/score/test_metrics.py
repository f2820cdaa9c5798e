"""Metrics against definitions written out here, not against the code's own helpers."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn import metrics as sk

from sparkgpu.score.metrics import compute, greater_is_better, mean_and_std, names, primary, score

RNG = np.random.default_rng(3)


def two_columns(p):
    p = np.asarray(p, dtype=np.float64)
    return np.stack([1 - p, p], axis=1)


def test_binary_metrics_have_the_values_worked_out_by_hand():
    found = compute("binary", [0, 0, 1, 1, 1], two_columns([0.1, 0.6, 0.6, 0.9, 0.3]))
    assert list(found) == ["roc_auc", "average_precision", "log_loss", "brier", "accuracy", "f1"]
    # Pairs (positive, negative): 0.6 beats 0.1, ties 0.6; 0.9 beats both; 0.3 beats 0.1 only.
    assert found["roc_auc"] == pytest.approx((1.5 + 2 + 1) / 6)
    # Thresholds 0.9 (recall 1/3, precision 1), 0.6 (2/3, 2/3), 0.3 (1, 3/4).
    assert found["average_precision"] == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.4, 0.6, 0.9, 0.3]).mean())
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.16 + 0.01 + 0.49) / 5)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))


def test_multiclass_metrics_have_the_values_worked_out_by_hand():
    probability = [[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]
    found = compute("multiclass", [0, 0, 1, 2], probability)
    assert list(found) == ["log_loss", "accuracy", "balanced_accuracy", "f1_macro"]
    assert found["log_loss"] == pytest.approx(-np.log([0.7, 0.2, 0.6, 0.6]).mean())
    assert found["accuracy"] == pytest.approx(3 / 4)
    assert found["balanced_accuracy"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    assert found["f1_macro"] == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)


def test_regression_metrics_agree_with_their_definitions():
    label = np.round(RNG.normal(size=500), 1)  # rounded, so that there are ties
    value = np.round(label + RNG.normal(size=500), 1)
    found = compute("regression", label, value)
    assert list(found) == ["rmse", "mae", "r2", "spearman"]
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((label - value) ** 2)))
    assert found["mae"] == pytest.approx(np.mean(np.abs(label - value)))
    assert found["r2"] == pytest.approx(
        1 - np.sum((label - value) ** 2) / np.sum((label - label.mean()) ** 2)
    )
    assert found["spearman"] == pytest.approx(spearmanr(label, value).statistic)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_a_row_of_weight_k_counts_as_k_equal_rows(task):
    weight = RNG.integers(0, 4, size=300)
    if task == "regression":
        label = np.round(RNG.normal(size=300), 1)
        prediction = np.round(label + RNG.normal(size=300), 1)
    else:
        num_classes = 2 if task == "binary" else 4
        label = RNG.integers(num_classes, size=300)
        prediction = RNG.dirichlet(np.ones(num_classes), size=300)
    weighted = compute(task, label, prediction, weight)
    repeated = compute(task, np.repeat(label, weight), np.repeat(prediction, weight, axis=0))
    assert weighted == pytest.approx(repeated, rel=1e-9)
    assert weighted != pytest.approx(compute(task, label, prediction), rel=1e-4)


def test_log_loss_agrees_with_scikit_learn_away_from_the_clip():
    label, probability = RNG.integers(5, size=400), RNG.dirichlet(np.ones(5), size=400)
    expected = sk.log_loss(label, probability, labels=range(5))
    assert compute("multiclass", label, probability)["log_loss"] == pytest.approx(expected)


def test_surely_wrong_costs_the_documented_clip_and_surely_right_nothing():
    found = compute("binary", [0, 1, 1, 0], two_columns([1.0, 0.0, 1.0, 0.0]))
    assert found["log_loss"] == pytest.approx(-np.log(1e-7) / 2)
    assert found["brier"] == pytest.approx(0.5)


def test_rows_that_almost_sum_to_one_are_scaled_for_losses():
    found = compute("multiclass", [0, 1], [[0.5004, 0.5004], [0.25, 0.75]])
    assert found["log_loss"] == pytest.approx(-(np.log(0.5) + np.log(0.75)) / 2)


def test_a_metric_that_one_class_alone_does_not_define_is_none_under_its_key():
    only_negative = compute("binary", [0, 0], two_columns([0.2, 0.4]))
    assert only_negative == {
        "roc_auc": None,
        "average_precision": None,
        "log_loss": pytest.approx(-np.log([0.8, 0.6]).mean()),
        "brier": pytest.approx((0.04 + 0.16) / 2),
        "accuracy": 1.0,
        "f1": None,
    }
    only_positive = compute("binary", [1, 1], two_columns([0.2, 0.6]))
    assert only_positive["roc_auc"] is None
    assert only_positive["average_precision"] == 1.0
    assert only_positive["f1"] == pytest.approx(2 / 3)
    decided_positive = compute("binary", [0, 0], two_columns([0.9, 0.4]))
    assert decided_positive["f1"] == 0.0


def test_a_class_whose_only_rows_weigh_nothing_is_absent():
    found = compute("binary", [0, 0, 1], two_columns([0.2, 0.4, 0.9]), [1.0, 1.0, 0.0])
    assert found["roc_auc"] is None


def test_multiclass_scores_a_split_that_lacks_a_class(recwarn):
    found = compute("multiclass", [0, 1], [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    assert found["balanced_accuracy"] == pytest.approx(0.5)
    assert found["f1_macro"] == pytest.approx((1 + 0 + 0) / 3)
    assert not recwarn.list


def test_constant_labels_or_predictions_leave_correlations_undefined(recwarn):
    constant_label = compute("regression", [2.0, 2.0], [1.0, 3.0])
    assert constant_label == {"rmse": 1.0, "mae": 1.0, "r2": None, "spearman": None}
    constant_value = compute("regression", [1.0, 3.0], [2.0, 2.0])
    assert constant_value == {"rmse": 1.0, "mae": 1.0, "r2": 0.0, "spearman": None}
    assert not recwarn.list


def test_equal_probabilities_decide_for_the_lower_code():
    assert compute("binary", [0, 1], two_columns([0.5, 0.5]))["accuracy"] == 0.5
    assert compute("binary", [0, 0], two_columns([0.5, 0.5]))["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("task", "prediction", "weight", "message"),
    [
        (
            "binary", [[0.5, 0.5], [np.nan, 0.5], [np.inf, 0]], None,
            "2 of 3 rows have a prediction that is not finite (1 with NaN); "
            "every row needs a finite prediction.",
        ),
        (
            "binary", [[0.5, 0.5], [0.4, 0.598]], None,
            "1 of 2 rows of probabilities do not sum to one within 0.001 (the first sums to 0.998); "
            "give one probability per class.",
        ),
        (
            "binary", [[0.5, 0.5], [-1.5, 2.5]], None,
            "1 of 2 rows hold a probability outside 0 to 1 (they run from -1.5 to 2.5); "
            "give probabilities, not margins or logits.",
        ),
        (
            "regression", [1.0], [0.0],
            "there are no rows to score; a split with at least one row of weight above 0 is needed.",
        ),
    ],
)  # fmt: skip
def test_unusable_predictions_are_refused_in_one_sentence_with_counts(task, prediction, weight, message):
    with pytest.raises(ValueError) as caught:
        compute(task, [0, 1, 1][: len(prediction)], prediction, weight)
    assert str(caught.value) == message


@pytest.mark.parametrize(("name", "power"), [("poisson", 1), ("tweedie", 1.5), ("gamma", 2)])
def test_deviances_are_those_of_scikit_learn_where_predictions_are_above_zero(name, power):
    metric = f"{name}_deviance"
    label, value, weight = RNG.gamma(2.0, size=(3, 200))
    found = compute("regression", label, value, weight, asked=metric, also=["rmse_of_logarithms"])
    assert found[metric] == sk.mean_tweedie_deviance(label, value, sample_weight=weight, power=power)
    error = np.average(np.log(label / value) ** 2, weights=weight)
    assert found["rmse_of_logarithms"] == pytest.approx(np.sqrt(error))
    value[3] = 0.0
    assert compute("regression", label, value, asked=metric)[metric] is None
    assert not greater_is_better(metric)


def test_rows_without_a_weight_above_zero_are_left_out():
    for weight in (0.0, -1.0, np.nan):
        found = compute("regression", [1.0, 2.0, 9.0], [1.0, 3.0, 0.0], [1.0, 1.0, weight])
        assert found["mae"] == 0.5


def test_scores_are_turned_so_that_greater_is_better():
    better = {"binary": "roc_auc", "multiclass": "log_loss", "regression": "rmse"}
    assert {task: primary(task) for task in better} == better
    smaller = {m for task in better for m in names(task) if not greater_is_better(m)}
    assert smaller == {"log_loss", "brier", "rmse", "mae"}
    assert score("roc_auc", 0.7) == 0.7
    assert score("rmse", 0.7) == -0.7


def test_trials_are_averaged_with_their_sample_spread_and_undefined_stays_undefined():
    mean, std = mean_and_std([{"rmse": 1.0, "r2": None}, {"rmse": 2.0, "r2": 0.5}, {"rmse": 6.0, "r2": 0.5}])
    assert mean == {"rmse": 3.0, "r2": None}
    assert std == {"rmse": pytest.approx(np.sqrt(7)), "r2": None}
    assert mean_and_std([{"rmse": 1.0}]) == ({"rmse": 1.0}, {"rmse": None})
