"""The lines of the plots agree with scikit-learn and stay short."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import auc, confusion_matrix, roc_auc_score, roc_curve

from sparkgpu.present.curves import MOST_POINTS, confusion, roc
from sparkgpu.score.predictions import Labels


def rows(label_N: np.ndarray, weight_N: np.ndarray | None = None) -> Labels:
    return Labels(row_id_N=np.arange(len(label_N)), label_N=label_N, weight_N=weight_N)


def test_a_short_roc_curve_is_scikit_learns() -> None:
    label_N = np.array([0, 1, 0, 1, 1, 0, 1])
    score_N = np.array([0.1, 0.9, 0.4, 0.4, 0.8, 0.4, 0.2])
    false, true = roc(rows(label_N), score_N)
    expected_false, expected_true, _ = roc_curve(label_N, score_N, drop_intermediate=False)
    assert false.tolist() == pytest.approx(expected_false.tolist())
    assert true.tolist() == pytest.approx(expected_true.tolist())


@pytest.mark.parametrize("strength", [0.0, 1.0, 8.0])
def test_a_long_roc_curve_keeps_its_area_and_its_ends(strength: float) -> None:
    rng = np.random.default_rng(0)
    label_N = rng.integers(0, 2, 50_000)
    score_N = rng.normal(size=50_000) + strength * label_N
    false, true = roc(rows(label_N), score_N)
    assert len(false) <= MOST_POINTS
    assert (false[0], true[0], false[-1], true[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert auc(false, true) == pytest.approx(roc_auc_score(label_N, score_N), abs=2e-3)


def test_confusion_shares_are_of_the_true_class_and_absent_classes_are_empty() -> None:
    rng = np.random.default_rng(0)
    label_N = rng.integers(0, 3, 500)
    probability_NC = rng.dirichlet(np.ones(4), 500)
    shares = confusion(rows(label_N), probability_NC)
    counts = confusion_matrix(label_N, probability_NC.argmax(axis=1), labels=range(4), normalize="true")
    assert shares == pytest.approx(counts)
    assert shares[3].tolist() == [0.0, 0.0, 0.0, 0.0]


def test_a_row_of_weight_three_is_drawn_as_three_rows() -> None:
    rng = np.random.default_rng(1)
    label_N, weight_N = rng.integers(0, 2, 300), rng.integers(0, 4, 300)
    probability_NC = rng.dirichlet(np.ones(2), 300)
    repeated_N = np.repeat(np.arange(300), weight_N)
    weighted, plain = rows(label_N, weight_N.astype(float)), rows(label_N[repeated_N])
    false, true = roc(weighted, probability_NC[:, 1])
    assert auc(false, true) == pytest.approx(auc(*roc(plain, probability_NC[repeated_N, 1])))
    assert confusion(weighted, probability_NC) == pytest.approx(confusion(plain, probability_NC[repeated_N]))
