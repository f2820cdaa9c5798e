"""The estimators for scikit-learn: its own checks, pipelines, copies, and what they learn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sparkgpu.sklearn import NeuralClassifier, NeuralRegressor, TreesClassifier, TreesRegressor

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:Skipping check", "ignore:invalid value"),
]

ESTIMATORS = (
    TreesClassifier,
    TreesRegressor,
    pytest.param(NeuralClassifier, marks=pytest.mark.slow),
    pytest.param(NeuralRegressor, marks=pytest.mark.slow),
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "rows are drawn for early stopping and for each tree or "
    "batch, so a row of weight two is not the same draw as two rows"
}


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_trees_say_what_each_column_added(engine: str) -> None:
    pytest.importorskip(engine)
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"a": random.normal(size=300), "town": random.choice(["Rome", "Oslo"], 300)})
    y = np.where(frame["a"] + (frame["town"] == "Oslo") > 0, "yes", "no")
    model = TreesClassifier(engine=engine, threads=1, random_state=0).fit(frame, y)
    found = model.explain(frame[:20])
    share_N = model.predict_proba(frame[:20])[:, 1]
    np.testing.assert_allclose(1 / (1 + np.exp(-found["prediction"])), share_N, atol=1e-5)
    assert list(found) == [
        "row",
        "class",
        "scale",
        "base",
        "contribution_a",
        "contribution_town",
        "prediction",
    ]
    assert set(found["class"]) == {"yes"} and (found["contribution_a"][frame["a"][:20] > 1.2] > 0).all()


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scikit_learns_own_checks_pass(kind: Any) -> None:
    found = check_estimator(kind(threads=1, random_state=0), expected_failed_checks=EXPECTED, on_fail="raise")
    assert {one["check_name"] for one in found if one["status"] == "xfail"} <= EXPECTED.keys()
    assert sum(one["status"] == "passed" for one in found) >= 55


def people(rows: int = 1200) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    drawn = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": drawn.normal(40, 10, rows),
            "town": drawn.choice(["a", "b", "c", None], rows),
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(drawn.integers(0, 500, rows), unit="D"),
            "member": drawn.random(rows) < 0.5,
        }
    )
    signal = (frame["age"] > 40).astype(int) + (frame["town"] == "b") + (frame["since"].dt.month > 6)
    return frame, np.where(signal > 1, "yes", "no")


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost", "mlp"])
def test_frames_of_words_dates_and_gaps_are_learned_and_predicted_from_a_copy(kind: str) -> None:
    frame, y = people()
    model: Any = (
        NeuralClassifier(architecture="mlp", config={"neural.epochs": 30}, random_state=1)
        if kind == "mlp"
        else TreesClassifier(engine=kind, random_state=1)
    )
    model.fit(frame[:900], y[:900])
    assert model.score(frame[900:], y[900:]) > 0.9
    assert model.classes_.tolist() == ["no", "yes"]
    again = pickle.loads(pickle.dumps(model))
    shuffled = frame[["age", "town", "since", "member"]]
    np.testing.assert_array_equal(again.predict_proba(shuffled), model.predict_proba(frame))
    new = frame[900:].assign(town="never seen")
    assert np.isfinite(model.predict_proba(new)).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"age": "years"}))
    assert not hasattr(clone(model), "n_iter_")


def test_it_works_in_pipelines_and_cross_validation() -> None:
    drawn = np.random.default_rng(0)
    X_NF = drawn.normal(size=(600, 4))
    y_N = X_NF[:, 0] * 3 + np.abs(X_NF[:, 1]) + drawn.normal(scale=0.1, size=600)
    pipeline = make_pipeline(StandardScaler(), TreesRegressor(random_state=0))
    assert cross_val_score(pipeline, X_NF, y_N, cv=3).mean() > 0.9
    same = [TreesRegressor(random_state=0).fit(X_NF, y_N).predict(X_NF) for _ in range(2)]
    np.testing.assert_array_equal(*same)


def test_settings_of_a_run_reach_the_engine_and_wrong_ones_are_refused() -> None:
    frame, y = people(200)
    few = TreesClassifier(config={"trees.ntrees": 7, "trees": {"max_leaves": 4}}, random_state=0)
    assert few.fit(frame, y).n_iter_ <= 7
    with pytest.raises(ValueError, match="ntreees"):
        TreesClassifier(config={"trees.ntreees": 7}).fit(frame, y)
    for settings, words in (
        ({"preset": "fats"}, "fats"),
        ({"engine": "h2o-xgboost"}, "choose one of xgboost, lightgbm"),
        ({"valid_size": 1.5}, "give a share of the rows between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=words):
            TreesClassifier(**settings).fit(frame, y)
    with pytest.raises(ValueError, match="one class"):
        TreesClassifier().fit(frame, ["yes"] * 200)


def rare(rows: int = 1500) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    drawn = np.random.default_rng(0)
    X_NF = drawn.normal(size=(rows, 2))
    return X_NF, np.where(X_NF[:, 0] + drawn.normal(size=rows) > 2.0, "rare", "usual")


@pytest.mark.parametrize("kind", [TreesClassifier, NeuralClassifier])
def test_class_weights_count_the_rows_of_their_classes_beside_sample_weights(kind: Any) -> None:
    X_NF, y = rare()
    own: Any = {"config": {"neural.epochs": 4}} if kind is NeuralClassifier else {}
    balanced = kind(class_weight="balanced", random_state=0, **own).fit(X_NF, y)
    assert balanced.predict_proba(X_NF)[:, 0].mean() > 2 * (y == "rare").mean()
    shares = {name: len(y) / (2 * (y == name).sum()) for name in ("rare", "usual")}
    weight_N = np.where(y == "rare", shares["rare"], shares["usual"])
    for class_weight, sample_weight in ((shares, None), (None, weight_N)):
        other = kind(class_weight=class_weight, random_state=0, **own).fit(X_NF, y, sample_weight)
        np.testing.assert_array_equal(other.predict_proba(X_NF), balanced.predict_proba(X_NF))
    half_N = np.where(np.arange(len(y)) % 2, 1.0, 1e-9)
    both = kind(class_weight=shares, random_state=0, **own).fit(X_NF, y, half_N)
    product = kind(random_state=0, **own).fit(X_NF, y, half_N * weight_N)
    np.testing.assert_array_equal(both.predict_proba(X_NF), product.predict_proba(X_NF))
    with pytest.raises(ValueError, match="class_weight"):
        kind(class_weight="fair").fit(X_NF, y)


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost", "catboost"])
def test_importances_are_shares_of_the_gain_by_the_columns_of_X(engine: str) -> None:
    frame, y = people()
    frame.insert(1, "constant", 1.0)
    model = TreesClassifier(engine=engine, config={"trees.ntrees": 100}, random_state=1).fit(frame, y)
    found = dict(zip(model.feature_names_in_, model.feature_importances_, strict=True))
    assert sum(found.values()) == pytest.approx(1.0) and found["constant"] == 0.0
    assert min(found["age"], found["town"], found["since"]) > 5 * found["member"]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)


def test_importances_of_arrays_are_in_the_order_of_their_columns_and_networks_have_none() -> None:
    drawn = np.random.default_rng(0)
    X_NF = drawn.normal(size=(600, 12))
    for X in (X_NF, pd.DataFrame(X_NF)):
        model = TreesRegressor(random_state=0).fit(X, 3 * X_NF[:, 11] + X_NF[:, 2])
        assert np.argsort(model.feature_importances_)[-2:].tolist() == [2, 11]
    with pytest.raises(AttributeError, match="is not fitted"):
        _ = TreesRegressor().feature_importances_
    with pytest.raises(AttributeError, match="permutation_importance"):
        _ = NeuralRegressor().feature_importances_


def test_intervals_and_sets_hold_the_truth_of_new_rows_from_a_copy_too() -> None:
    frame, y = people(3_000)
    number_N = frame["age"] / 10 + np.random.default_rng(1).normal(size=3_000)
    sure = {"intervals": 0.8, "trees.ntrees": 30}
    trees = TreesRegressor(config=sure, random_state=0).fit(frame[:2000], number_N[:2000])
    ends_N2 = pickle.loads(pickle.dumps(trees)).predict_interval(frame[2000:])
    assert np.mean((ends_N2[:, 0] <= number_N[2000:]) & (number_N[2000:] <= ends_N2[:, 1])) > 0.72
    classes = TreesClassifier(config=sure, random_state=0).fit(frame[:2000], y[:2000])
    held_NC = classes.predict_set(frame[2000:])
    assert held_NC[np.arange(1000), np.searchsorted(classes.classes_, y[2000:])].mean() > 0.72
    with pytest.raises(ValueError, match=r'fitted without intervals; give config=\{"intervals": 0.9\}'):
        TreesClassifier(config={"trees.ntrees": 2}).fit(frame, y).predict_set(frame)
