"""Splits too large for memory: the metrics of all rows, from parts of them, beside those of one piece."""

import numpy as np
import pytest
from made_run import MadeRun

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.predictions import read_predictions, write_predictions
from sparkgpu.runs import evaluate as evaluation
from sparkgpu.score import compare, metrics
from sparkgpu.score.rows import checked
from sparkgpu.score.tally import Tally

ROWS = 300_000


def _drawn(task, kind="smooth"):
    """Labels, predictions and weights: probabilities that repeat, that saturate, of rare classes, or not."""
    rng = np.random.default_rng(11)
    weight_N = rng.integers(0, 4, ROWS).astype(float)
    if task == "regression":
        label_N = rng.gamma(2.0, size=ROWS) if kind == "smooth" else rng.integers(1, 6, ROWS).astype(float)
        return label_N, label_N * np.exp(rng.normal(size=ROWS)), weight_N
    classes = 2 if task == "binary" else 4
    logit_NC = rng.normal(size=(ROWS, classes))
    if kind == "rare":
        logit_NC[:, 1] -= 6
    if kind == "saturated":
        logit_NC *= 12
    share_NC = np.exp(logit_NC) / np.exp(logit_NC).sum(axis=1, keepdims=True)
    label_N = (share_NC.cumsum(axis=1) < rng.random((ROWS, 1))).sum(axis=1)
    if kind == "repeated":
        share_NC = np.round(share_NC, 1)
        share_NC[:, 0] = 1 - share_NC[:, 1:].sum(axis=1)
    return label_N, share_NC, weight_N


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("task", "kind"),
    [("binary", "smooth"), ("binary", "repeated"), ("binary", "saturated"), ("binary", "rare"),
     ("multiclass", "smooth"), ("regression", "smooth"), ("regression", "counts")],
)  # fmt: skip
def test_metrics_from_parts_are_those_of_all_rows(task, kind, weighted):
    label_N, prediction, weight_N = _drawn(task, kind)
    weight_N = weight_N if weighted else None
    also = tuple(metrics.DEVIANCES.values()) if task == "regression" else ()
    expected = metrics.compute(task, label_N, prediction, weight_N, also=also)

    def rows(part):
        return checked(task, label_N[part], prediction[part], None if weight_N is None else weight_N[part])

    first = Tally(expected, rows(slice(None, None, 7)))
    second = first.empty()
    for place in range(6):
        (first, second)[place % 2].add(rows(slice(place * ROWS // 6, (place + 1) * ROWS // 6)))
    first.join(second)
    found = first.metrics()
    assert list(found) == list(expected)
    for name, value in expected.items():
        ranks = name in ("roc_auc", "average_precision", "spearman")
        assert found[name] == pytest.approx(value, rel=0 if ranks else 1e-9, abs=2e-5 if ranks else 1e-12), (
            name
        )


def test_what_the_rows_do_not_define_is_none_from_parts_too():
    rows = checked("regression", np.full(40, 2.0), np.linspace(-1, 1, 40))
    tally = Tally(("rmse", "r2", "spearman", "poisson_deviance"), rows)
    tally.add(rows)
    found = tally.metrics()
    assert found.pop("rmse") is not None
    assert set(found.values()) == {None}


@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_a_run_with_large_splits_has_the_metrics_of_a_small_one(tmp_path, monkeypatch, task, folds):
    expected = MadeRun(task, folds).evaluated(tmp_path / "small", weight="w")
    monkeypatch.setattr(evaluation, "MOST_VALUES", 100)
    monkeypatch.setattr("sparkgpu.score.whole._PART_ROWS", 50)
    found = MadeRun(task, folds).evaluated(tmp_path / "large", weight="w")
    blend = [model for model in found.models if model.name == "blend"]
    assert blend and len(expected.models) == len(found.models)
    exact = {"log_loss", "brier", "accuracy", "rmse", "mae", "r2", "f1_macro", "balanced_accuracy", "f1"}
    for large, small in (*zip(found.trials, expected.trials, strict=True),
                         *zip(found.models[:2], expected.models[:2], strict=True)):  # fmt: skip
        for split in ("valid", "test"):
            values = {name: value for name, value in small.metrics.of(split).items() if name in exact}
            assert {name: large.metrics.of(split)[name] for name in values} == pytest.approx(values)
    for large, small in zip(found.comparison.pairs[:1], expected.comparison.pairs[:1], strict=True):
        if task != "binary":  # whose ranks are those of a sample's cells
            assert large.difference == pytest.approx(small.difference)
        assert "its spread from one of" in large.method
    assert [text for text in found.comparison.caveats if text.startswith("large splits:")]
    assert not [text for text in expected.comparison.caveats if text.startswith("large splits:")]


def test_predictions_of_other_rows_are_refused_in_large_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "MOST_VALUES", 100)
    run = MadeRun("regression")
    run.evaluated(tmp_path)
    file = RunPaths(root=tmp_path).trial("trees-0").predictions
    found = read_predictions(file, run.schema)
    row_id_N, values = found["test"]
    write_predictions(file, {**found, "test": (np.r_[row_id_N, 999, 1000], np.r_[values, 0, 0])}, run.schema)
    with pytest.raises(ValueError, match=r"the \d+ predictions do not match the \d+ labelled rows"):
        evaluation.evaluate(RunPaths(root=tmp_path), run.plan, run.schema, {}, 7, {})


def test_predictions_in_any_order_lie_in_that_of_their_ids(tmp_path):
    run = MadeRun("multiclass")
    run.evaluated(tmp_path)
    row_id_N, values_NC = np.array([5, 1, 3]), np.eye(3)
    write_predictions(tmp_path / "p.parquet", {"test": (row_id_N, values_NC)}, run.schema)
    ids, found = read_predictions(tmp_path / "p.parquet", run.schema)["test"]
    assert ids.tolist() == [1, 3, 5]
    assert np.array_equal(found, values_NC[[1, 2, 0]])


def test_the_interval_of_a_sample_says_how_wide_that_of_all_rows_is():
    label_N, a_NC, _ = _drawn("binary")
    b_NC = a_NC[:, ::-1] * 0.2 + a_NC * 0.8
    b_NC = 0.5 * b_NC + 0.5 * np.random.default_rng(3).dirichlet((1, 1), ROWS)
    expected = compare.compare("binary", label_N, a_NC, b_NC, 7)
    part = slice(None, None, 5)
    values = [metrics.compute("binary", label_N, found)["roc_auc"] for found in (a_NC, b_NC)]
    found = compare.compare("binary", label_N[part], a_NC[part], b_NC[part], 7).of_more_rows(*values, 5)
    assert found.difference == pytest.approx(expected.difference)
    assert found.verdict == expected.verdict
    assert found.ci95 == pytest.approx(expected.ci95, abs=1e-4)
