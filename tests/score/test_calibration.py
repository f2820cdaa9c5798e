"""Temperatures and calibration errors of probabilities whose truth is known."""

import numpy as np
import pytest

from sparkgpu.score.calibration import brier_score, calibration_error, reliability, scaled, temperature
from sparkgpu.score.metrics import compute


def honest(task, rows=40_000, seed=1):
    """Labels drawn from the probabilities themselves."""
    rng = np.random.default_rng(seed)
    classes = 2 if task == "binary" else 5
    logits = 1.5 * rng.normal(size=(rows, classes))
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    label = (probability.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return label, probability


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("by", [0.4, 1.0, 2.5])
def test_the_temperature_that_was_put_in_is_found_again(task, by):
    label, probability = honest(task)
    distorted = scaled(probability, 1 / by)
    assert temperature(task, label, distorted) == pytest.approx(by, rel=0.04)
    restored = scaled(distorted, temperature(task, label, distorted))
    assert calibration_error(task, label, restored) < 0.012
    if by != 1.0:
        assert calibration_error(task, label, distorted) > 4 * calibration_error(task, label, restored)
        assert brier_score(task, label, restored) < brier_score(task, label, distorted)


def test_scaling_keeps_sums_classes_and_order():
    _, probability = honest("multiclass", rows=500)
    for by in (0.1, 1.0, 7.0):
        found = scaled(probability, by)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
        assert (found.argmax(axis=1) == probability.argmax(axis=1)).all()
    np.testing.assert_allclose(scaled(scaled(probability, 2.0), 0.5), probability, atol=1e-9)
    np.testing.assert_allclose(scaled(probability, 1.0), probability, atol=1e-9)


def test_a_few_rows_that_are_all_right_do_not_make_a_model_certain():
    label = np.arange(27) % 3
    probability = 0.55 * np.eye(3)[label] + 0.15
    assert 0.4 < temperature("multiclass", label, probability) < 0.9
    many = np.tile(label, 100)
    assert temperature("multiclass", many, np.tile(probability, (100, 1))) < 0.4


def test_sure_predictions_of_zero_and_one_stay_finite():
    found = scaled(np.array([[1.0, 0.0], [0.5, 0.5]]), 0.05)
    assert np.isfinite(found).all() and found[0, 0] == pytest.approx(1.0)


def test_the_error_of_two_bins_by_hand():
    label = np.array([0, 1, 1, 1])
    first = np.array([0.9, 0.9, 0.2, 0.2])
    found = reliability("binary", label, np.column_stack([first, 1 - first]))
    np.testing.assert_allclose(found.probability_B, [0.1, 0.8])
    np.testing.assert_allclose(found.share_B, [0.5, 1.0])
    error = calibration_error("binary", label, np.column_stack([first, 1 - first]))
    assert error == pytest.approx((0.4 + 0.2) / 2)


def test_a_row_of_weight_three_counts_as_three_rows():
    label, probability = honest("multiclass", rows=300)
    weight = np.random.default_rng(2).integers(0, 4, 300)
    own = np.repeat(np.arange(300), weight)
    for function in (calibration_error, brier_score):
        weighted = function("multiclass", label, probability, weight)
        assert weighted == pytest.approx(function("multiclass", label[own], probability[own]), rel=1e-6)
    found = temperature("multiclass", label, scaled(probability, 2.0), weight)
    # The rows' own weights count alike, but repeated rows count as more evidence against a temperature of 1.
    repeated = temperature("multiclass", label[own], scaled(probability, 2.0)[own])
    assert found == pytest.approx(repeated, rel=0.05)
    assert temperature("multiclass", label, scaled(probability, 2.0), 1e-3 * weight) == pytest.approx(found)


def test_the_brier_score_of_two_classes_is_that_of_the_metrics():
    label, probability = honest("binary", rows=300)
    assert brier_score("binary", label, probability) == pytest.approx(
        compute("binary", label, probability)["brier"]
    )
