"""Intervals and sets by split-conformal prediction: what they promise, on drawn rows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from made_run import MadeRun

from sparkgpu.core.rundir.intervals import Conformal
from sparkgpu.score.conformal import calibrated, intervals, measured, sets
from sparkgpu.score.segments import by_level


def uneven(rows: int, seed: int):
    """Numbers whose noise grows with them, and predictions without that noise."""
    rng = np.random.default_rng(seed)
    value_N = rng.uniform(1, 10, rows)
    return value_N + value_N * rng.normal(size=rows), value_N


def classes(rows: int, seed: int):
    rng = np.random.default_rng(seed)
    probability_NC = rng.dirichlet([0.5, 0.5, 0.5], rows)
    label_N = (rng.random(rows)[:, None] > probability_NC.cumsum(axis=1)).sum(axis=1)
    return np.minimum(label_N, 2), probability_NC


def test_the_reach_is_the_score_at_the_finite_sample_quantile():
    rng = np.random.default_rng(0)
    label_N = rng.normal(size=39)
    for coverage in (0.5, 0.8, 0.9):
        fitted = calibrated("regression", coverage, label_N, np.zeros(39))
        place = math.ceil((39 + 1) * coverage) - 1
        assert fitted.reach == (np.sort(np.abs(label_N))[place],)


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_new_rows_are_inside_as_often_as_asked(coverage: float):
    for task, draw in (("regression", uneven), ("multiclass", classes)):
        inside = []
        for seed in range(40):
            fitted = calibrated(task, coverage, *draw(400, seed))
            inside.append(measured(task, fitted, *draw(4_000, 1_000 + seed), []).test.coverage)
        assert np.mean(inside) == pytest.approx(coverage, abs=0.01)


def test_intervals_are_wider_where_errors_are_greater_and_hold_their_share_in_each_range():
    fitted = calibrated("regression", 0.9, *uneven(4_000, 0))
    assert len(fitted.cuts) == 9 and fitted.reach[-1] > 3 * fitted.reach[0]
    label_N, value_N = uneven(40_000, 1)
    ends_N2 = intervals(fitted, value_N)
    inside_N = (ends_N2[:, 0] <= label_N) & (label_N <= ends_N2[:, 1])
    for small_N in (value_N < 2.5, value_N > 8):
        assert inside_N[small_N].mean() == pytest.approx(0.9, abs=0.03)


def test_too_few_rows_leave_the_ends_without_a_limit_and_every_class_in_the_set():
    fitted = calibrated("regression", 0.95, *uneven(18, 0))
    assert fitted.reach == (None,)
    assert np.isinf(intervals(fitted, np.ones(2))).all()
    found = measured("regression", fitted, *uneven(50, 1), [])
    assert (found.test.width, found.test.coverage) == (None, 1.0)
    assert sets(calibrated("multiclass", 0.95, *classes(18, 0)), classes(5, 1)[1]).all()


def test_a_weight_counts_like_that_many_rows():
    label_N, _ = uneven(300, 0)
    weight_N = np.where(np.abs(label_N) > 8, 3, np.arange(300) % 2)
    own_N = np.repeat(np.arange(300), weight_N)
    weighted = calibrated("regression", 0.8, label_N, np.zeros(300), weight_N=weight_N)
    repeated = calibrated("regression", 0.8, label_N[own_N], np.zeros(len(own_N)))
    assert weighted.reach == pytest.approx(repeated.reach, rel=0.02)
    unweighted = calibrated("regression", 0.8, label_N, np.zeros(300))
    assert unweighted.reach != pytest.approx(weighted.reach, rel=0.02)


def test_a_set_holds_the_classes_that_are_likely_enough_and_may_be_empty():
    fitted = Conformal(coverage=0.9, rows=100, reach=(0.25,))
    found_NC = sets(fitted, np.array([[0.8, 0.2], [0.5, 0.5], [0.75, 0.25]]))
    assert found_NC.tolist() == [[True, False], [False, False], [True, False]]


def test_the_groups_are_those_that_lack_coverage_beyond_chance():
    label_N, value_N = uneven(20_000, 0)
    fitted = calibrated("regression", 0.9, label_N, value_N)
    code_N = np.arange(20_000) % 4
    label_N = np.where(code_N == 2, label_N * 1.5, label_N)  # the model knows nothing of it
    found = measured("regression", fitted, label_N, value_N, [by_level("shop", list("abcd"), code_N)])
    assert [one.name for one in found.short] == ["shop = c"]
    (short,) = found.short
    inside_N = np.abs(label_N - value_N) <= np.diff(intervals(fitted, value_N))[:, 0] / 2
    assert short.coverage == pytest.approx(inside_N[code_N == 2].mean())
    assert short.ci95[0] < short.coverage < short.ci95[1] < 0.9
    assert len(found.groups) == 4


@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_each_model_and_the_blend_get_theirs_only_if_asked(tmp_path: Path, task: str, folds: int | None):
    made = MadeRun(task, folds)
    plain = made.evaluated(tmp_path / "plain")
    assert all(model.intervals is None for model in plain.models)
    for model in made.evaluated(tmp_path / "sure", coverage=0.8).models:
        assert model.intervals is not None and model.intervals.fitted.coverage == 0.8
        assert model.intervals.fitted.rows == 120  # of the validation split, or out of fold
        assert model.intervals.test.rows == 120
        assert model.intervals.test.coverage > 0.68  # a mean of several folds is better than each
        assert (model.intervals.empty is None) == (task == "regression")
