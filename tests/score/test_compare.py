"""Intervals against brute force, plain bootstraps and simulations with a known truth."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from sparkgpu.score.compare import Comparison, compare, delong, interval
from sparkgpu.score.metrics import compute, primary_value


def two_columns(p):
    return np.stack([1 - p, p], axis=1)


def binormal(rng, num_rows, shift_a, shift_b):
    """Correlated scores whose ROC AUC is norm.cdf(shift / sqrt 2)."""
    label = (rng.random(num_rows) < 0.3).astype(int)
    shared = rng.normal(size=num_rows)
    a = shift_a * label + 0.6 * shared + 0.8 * rng.normal(size=num_rows)
    b = shift_b * label + 0.6 * shared + 0.8 * rng.normal(size=num_rows)
    return label, a, b


def delong_by_definition(label, a, b):
    """The 1988 formulas with the full P x Q kernel and sample covariances."""
    placements = []
    for s in (a, b):
        kernel = (s[label == 1][:, None] > s[label == 0]) + 0.5 * (s[label == 1][:, None] == s[label == 0])
        placements.append((kernel.mean(axis=1), kernel.mean(axis=0)))
    (p_a, q_a), (p_b, q_b) = placements
    contrast = np.array([1, -1])
    covariance = np.cov(p_a, p_b) / len(p_a) + np.cov(q_a, q_b) / len(q_a)
    return p_a.mean(), p_b.mean(), contrast @ covariance @ contrast


@pytest.mark.parametrize("decimals", [12, 0])
def test_delong_equals_its_definition_with_and_without_ties(decimals):
    label, a, b = binormal(np.random.default_rng(1), 250, 1.5, 1.0)
    a, b = np.round(a, decimals), np.round(b, decimals)
    assert delong(label, a, b) == pytest.approx(delong_by_definition(label, a, b), rel=1e-10)


def test_delong_variance_of_weighted_rows_agrees_with_a_bootstrap():
    rng = np.random.default_rng(4)
    label, a, b = binormal(rng, 800, 1.2, 0.9)
    weight = rng.exponential(size=800)
    positive, negative = np.flatnonzero(label == 1), np.flatnonzero(label == 0)
    kernels = [(s[positive][:, None] > s[negative]).astype(float) for s in (a, b)]
    differences = []
    for _ in range(1500):
        w_p = weight[positive] * np.bincount(
            rng.integers(len(positive), size=len(positive)), minlength=len(positive)
        )
        w_q = weight[negative] * np.bincount(
            rng.integers(len(negative), size=len(negative)), minlength=len(negative)
        )
        auc_a, auc_b = (w_p @ kernel @ w_q / w_p.sum() / w_q.sum() for kernel in kernels)
        differences.append(auc_a - auc_b)
    _, _, variance = delong(label, a, b, weight)
    assert math.sqrt(variance) == pytest.approx(np.std(differences), rel=0.07)


def test_delong_interval_covers_the_true_difference_in_about_95_of_100_tables():
    rng = np.random.default_rng(5)
    truth = norm.cdf(1.2 / math.sqrt(2)) - norm.cdf(0.9 / math.sqrt(2))
    covered = []
    for _ in range(500):
        label, a, b = binormal(rng, 300, 1.2, 0.9)
        found = compare("binary", label, two_columns(expit(a)), two_columns(expit(b)), seed=0)
        covered.append(found.ci95[0] <= truth <= found.ci95[1])
    assert 0.92 <= np.mean(covered) <= 0.98  # four standard errors of a true 0.95 are 0.039


def test_bootstrap_interval_covers_the_true_difference_in_about_95_of_100_tables():
    rng = np.random.default_rng(6)
    truth = 1.0 - 1.2  # errors with these standard deviations
    covered = []
    for seed in range(200):
        label, shared = rng.normal(size=150), rng.normal(size=150)
        a = label + 0.8 * shared + 0.6 * rng.normal(size=150)
        b = label + 1.2 * (0.8 * shared + 0.6 * rng.normal(size=150))
        found = compare("regression", label, a, b, seed=seed)
        covered.append(found.ci95[0] <= truth <= found.ci95[1])
    assert 0.90 <= np.mean(covered) <= 0.99


def test_without_a_true_difference_a_leader_is_named_in_about_1_of_20_tables():
    rng = np.random.default_rng(7)
    verdicts = []
    for _ in range(400):
        label, a, b = binormal(rng, 300, 1.0, 1.0)
        verdicts.append(
            compare("binary", label, two_columns(expit(a)), two_columns(expit(b)), seed=0).verdict
        )
    assert 0.02 <= np.mean([verdict != "tie" for verdict in verdicts]) <= 0.08


def test_grouped_bootstrap_of_a_long_table_agrees_with_the_central_limit_theorem():
    rng = np.random.default_rng(8)
    label = rng.integers(3, size=60_001)
    a, b = rng.dirichlet(np.ones(3) * 4, size=60_001), rng.dirichlet(np.ones(3) * 3, size=60_001)
    rows = np.arange(60_001)
    row_difference = -np.log(a[rows, label]) + np.log(b[rows, label])
    found = compare("multiclass", label, a, b, seed=1)
    half = 1.96 * row_difference.std() / math.sqrt(60_001)
    assert found.metric == "log_loss"
    assert found.difference == pytest.approx(row_difference.mean())
    assert found.ci95 == pytest.approx(
        (row_difference.mean() - half, row_difference.mean() + half), abs=0.16 * half
    )
    assert found.method == "paired bootstrap (2000 replicates of 2000 groups)"


def test_bootstrap_of_a_short_table_agrees_with_resampling_its_rows():
    rng = np.random.default_rng(9)
    label = rng.normal(size=300)
    a, b = label + rng.normal(size=300), label + 1.1 * rng.normal(size=300)
    weight = rng.exponential(size=300)
    replicates = []
    for _ in range(2000):
        drawn = rng.integers(300, size=300)
        rmse_a, rmse_b = (
            math.sqrt(np.average((p[drawn] - label[drawn]) ** 2, weights=weight[drawn])) for p in (a, b)
        )
        replicates.append(rmse_a - rmse_b)
    expected = np.quantile(replicates, [0.025, 0.975])
    found = compare("regression", label, a, b, seed=0, weight_N=weight)
    assert found.ci95 == pytest.approx(tuple(expected), abs=0.12 * (expected[1] - expected[0]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_the_difference_is_that_of_the_metrics_and_changes_sign_with_the_order(task, weighted):
    rng = np.random.default_rng(10)
    weight = rng.exponential(size=500) if weighted else None
    if task == "regression":
        label = rng.normal(size=500)
        good, poor = label + rng.normal(size=500), label + 3 * rng.normal(size=500)
    else:
        num_classes = 2 if task == "binary" else 3
        label = rng.integers(num_classes, size=500)
        poor = rng.dirichlet(np.ones(num_classes), size=500)
        good = 0.4 * np.eye(num_classes)[label] + 0.6 * rng.dirichlet(np.ones(num_classes), size=500)
    forth = compare(task, label, good, poor, seed=3, weight_N=weight)
    back = compare(task, label, poor, good, seed=3, weight_N=weight)
    expected = (
        compute(task, label, good, weight)[forth.metric] - compute(task, label, poor, weight)[forth.metric]
    )
    assert forth.difference == pytest.approx(expected)
    assert (expected > 0) == (task == "binary")  # losses: the better one has the smaller value
    assert (forth.verdict, back.verdict) == ("a", "b")
    assert back.difference == -forth.difference
    assert back.ci95 == pytest.approx((-forth.ci95[1], -forth.ci95[0]))
    assert forth.sentence("trees", "neural") == back.sentence("neural", "trees")
    assert forth == compare(task, label, good, poor, seed=3, weight_N=weight)


@pytest.mark.parametrize(
    ("task", "weighted"), [("binary", True), ("multiclass", False), ("regression", True)]
)
def test_the_interval_of_one_prediction_holds_its_metric_and_is_that_of_a_bootstrap(task, weighted):
    random = np.random.default_rng(5)
    rows, classes = 1500, {"binary": 2, "multiclass": 3, "regression": 0}[task]
    weight_N = random.integers(0, 3, rows).astype(float) if weighted else None
    if classes:
        label_N = random.integers(0, classes, rows)
        logit_NC = random.normal(size=(rows, classes)) + np.eye(classes)[label_N]
        prediction = np.exp(logit_NC) / np.exp(logit_NC).sum(axis=1, keepdims=True)
    else:
        label_N = random.normal(size=rows)
        prediction = label_N + random.normal(size=rows)
    low, high = interval(task, label_N, prediction, seed=1, weight_N=weight_N)

    def metric(rows_N):
        of_rows = None if weight_N is None else weight_N[rows_N]
        return primary_value(task, label_N[rows_N], prediction[rows_N], of_rows)

    drawn = [metric(random.integers(0, rows, rows)) for _ in range(200)]
    wanted_low, wanted_high = np.quantile(drawn, [0.025, 0.975])
    assert low < metric(np.arange(rows)) < high
    assert high - low == pytest.approx(wanted_high - wanted_low, rel=0.3)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_identical_predictions_tie_at_zero(task):
    rng = np.random.default_rng(11)
    label = rng.integers(2, size=100)
    prediction = rng.normal(size=100) if task == "regression" else rng.dirichlet(np.ones(2), size=100)
    found = compare(task, label, prediction, prediction.copy(), seed=0)
    assert (found.difference, found.ci95, found.verdict) == (0.0, (0.0, 0.0), "tie")
    assert found.sentence("trees", "neural").startswith("tie: trees and neural are equal in ")


def test_two_different_perfect_rankings_tie():
    label = np.repeat([0, 1], 50)
    a, b = np.linspace(0.1, 0.9, 100), np.linspace(0.2, 0.7, 100) ** 2
    found = compare("binary", label, two_columns(a), two_columns(b), seed=0)
    assert (found.difference, found.ci95, found.verdict) == (0.0, (0.0, 0.0), "tie")


def test_a_perfect_ranking_is_ahead_of_a_constant_although_neither_varies():
    label = np.repeat([0, 1], 50)
    perfect, constant = two_columns(np.linspace(0.1, 0.9, 100)), np.full((100, 2), 0.5)
    found = compare("binary", label, constant, perfect, seed=0)
    assert (found.difference, found.ci95, found.verdict) == (-0.5, (-0.5, -0.5), "b")
    assert found.sentence("neural", "trees") == (
        "trees ahead of neural by 0.5000 ROC AUC (95 % interval 0.5000 to 0.5000)"
    )


def test_a_constant_loss_difference_has_an_interval_of_no_width():
    label = np.zeros(100)
    found = compare("regression", label, np.full(100, 2.0), np.full(100, 1.0), seed=0)
    assert found.difference == pytest.approx(1.0)
    assert found.ci95 == pytest.approx((1.0, 1.0))
    assert found.verdict == "b"


def test_the_interval_of_an_area_ends_at_1():
    label_N = np.repeat([0, 1], 20)
    prediction_N = np.where(np.arange(40) == 19, 0.9, label_N * 0.8 + np.arange(40) / 1000)
    low, high = interval("binary", label_N, np.stack([1 - prediction_N, prediction_N], axis=1), seed=1)
    assert 0.8 < low < high == 1.0


def test_a_split_of_one_class_is_a_tie_with_its_reason_and_no_interval():
    p = two_columns(np.linspace(0.1, 0.9, 20))
    found = compare("binary", np.ones(20, dtype=int), p, p[::-1], seed=0)
    assert (found.difference, found.ci95, found.verdict) == (None, (None, None), "tie")
    assert found.reason == "all 20 rows are of the positive class"
    assert found.sentence("trees", "neural") == (
        "tie: trees and neural cannot be told apart in ROC AUC: all 20 rows are of the positive class"
    )


@pytest.mark.parametrize("num_positive", [1, 9])
def test_too_few_rows_of_a_class_give_a_difference_but_no_interval(num_positive):
    label = np.repeat([0, 1], [50, num_positive])
    good = two_columns(np.linspace(0.1, 0.9, len(label)))
    found = compare("binary", label, good, good[::-1], seed=0)
    assert (found.difference, found.ci95, found.verdict) == (1.0, (None, None), "tie")
    assert found.reason == f"too few rows of the positive class ({num_positive}; at least 10 are needed)"


def test_too_few_rows_give_a_difference_but_no_interval():
    found = compare("regression", np.zeros(9), np.ones(9), np.full(9, 3.0), seed=0)
    assert (found.difference, found.ci95, found.verdict) == (-2.0, (None, None), "tie")
    assert found.reason == "too few rows (9; at least 10 are needed)"


@pytest.mark.parametrize(
    ("metric", "difference", "interval", "verdict", "sentence"),
    [
        (
            "roc_auc",
            0.01234,
            (0.01011, 0.01449),
            "a",
            "trees ahead of neural by 0.0123 ROC AUC (95 % interval 0.0101 to 0.0145)",
        ),
        (
            "log_loss",
            -0.01234,
            (-0.01449, -0.01011),
            "a",
            "trees ahead of neural by 0.0123 log loss (95 % interval 0.0101 to 0.0145)",
        ),
        (
            "rmse",
            1234.5,
            (1000.4, 1500.2),
            "b",
            "neural ahead of trees by 1,234 RMSE (95 % interval 1,000 to 1,500)",
        ),
        (
            "roc_auc",
            -0.0003,
            (-0.00121, 0.00061),
            "tie",
            "tie: trees minus neural is -0.0003 ROC AUC, which could be chance "
            "(95 % interval -0.0012 to 0.0006)",
        ),
        (
            "roc_auc",
            -0.0048,
            (-0.06, 0.05),
            "tie",
            "tie: trees minus neural is -0.005 ROC AUC, which could be chance "
            "(95 % interval -0.060 to 0.050)",
        ),
        (
            "mae",
            -0.94,
            (-1.84, -0.039),
            "a",
            "trees ahead of neural by 0.94 MAE (95 % interval 0.04 to 1.84)",
        ),
    ],
)
def test_the_sentence_names_the_leader_first_with_digits_that_fit_the_interval(
    metric, difference, interval, verdict, sentence
):
    found = Comparison(metric=metric, difference=difference, ci95=interval, verdict=verdict, method="")
    assert found.sentence("trees", "neural") == sentence
