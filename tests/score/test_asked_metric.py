"""A metric that the user names decides in place of the task's own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sk

from sparkgpu.core.errors import ConfigError
from sparkgpu.score import compare, metrics


def drawn(task: str, rows: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    if task == "regression":
        label_N = rng.gamma(2.0, size=rows) + 0.1
        return label_N, label_N * rng.uniform(0.8, 1.2, rows)
    classes = {"binary": 2, "multiclass": 4}[task]
    label_N = rng.integers(classes, size=rows)
    return label_N, rng.dirichlet(np.ones(classes), rows) * 0.5 + np.eye(classes)[label_N] * 0.5


@pytest.mark.parametrize(
    ("task", "name", "expected"),
    [
        ("binary", "matthews_corrcoef",
         lambda y, p, w: sk.matthews_corrcoef(y, p.argmax(1), sample_weight=w)),
        ("binary", "neg_log_loss", lambda y, p, w: -sk.log_loss(y, p, sample_weight=w)),
        ("multiclass", "roc_auc_ovr",
         lambda y, p, w: sk.roc_auc_score(y, p, multi_class="ovr", sample_weight=w)),
        ("regression", "neg_mean_absolute_percentage_error",
         lambda y, p, w: -sk.mean_absolute_percentage_error(y, p, sample_weight=w)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("weighted", [False, True])
def test_a_scorer_of_scikit_learn_gives_what_its_function_gives(task, name, expected, weighted):
    label_N, prediction = drawn(task, 300)
    weight_N = np.random.default_rng(1).uniform(0.5, 2, 300) if weighted else None
    found = metrics.compute(task, label_N, prediction, weight_N, asked=name)
    assert list(found) == [name, *metrics.names(task)]
    assert found[name] == pytest.approx(expected(label_N, prediction, weight_N))
    assert metrics.greater_is_better(name)


@pytest.mark.parametrize(
    ("metric", "task", "words"),
    [
        ("acuracy", "binary", "Did you mean 'accuracy'?"),
        ("roc_auc", "regression", "belongs to another task"),
        ("rmse", "multiclass", "cannot score a multiclass"),
        ("jaccard", "multiclass", "cannot score a multiclass"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused_before_training(metric, task, words):
    with pytest.raises(ConfigError) as found:
        metrics.check_known(metric)
        metrics.check_asked(metric, task, 3 if task == "multiclass" else 2)
    assert words in str(found.value)


def test_the_direction_of_a_metric_that_nobody_brings_is_not_guessed():
    with pytest.raises(ConfigError, match="metric 'toy-cost': there is none of this name"):
        metrics.greater_is_better("toy-cost")


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), ("mae", -1)])
def test_the_better_of_two_predictions_is_ahead_whatever_the_direction(metric, sign):
    task = "binary" if sign > 0 else "regression"
    label_N, good = drawn(task, 400)
    bad = good[::-1]
    found = compare.compare(task, label_N, good, bad, 7, asked=metric)
    assert found.metric == metric and found.verdict == "a" and found.difference * sign > 0
    assert compare.compare(task, label_N, bad, good, 7, asked=metric).verdict == "b"
    assert compare.compare(task, label_N, good, good, 7, asked=metric).verdict == "tie"


@pytest.mark.parametrize("rows", [200, 20_000])
def test_the_interval_of_a_mean_is_that_of_its_standard_error(rows):
    label_N, prediction = drawn("regression", rows)
    error_N = np.abs(label_N - prediction)
    low, high = compare.interval("regression", label_N, prediction, 7, asked="mae")
    assert (high - low) / 3.92 == pytest.approx(error_N.std() / np.sqrt(rows), rel=0.2)
    assert (low + high) / 2 == pytest.approx(error_N.mean())
