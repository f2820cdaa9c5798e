"""Weights against grids and closed forms; on its fitting rows a blend must never be worse."""

import itertools

import numpy as np
import pytest

from sparkgpu.score.blend import blend, blend_weights
from sparkgpu.score.metrics import compute


def classes(rng, num_rows, num_classes, num_models, step=0.2):
    label = rng.integers(num_classes, size=num_rows)
    truth = np.eye(num_classes)[label]
    predictions = {}
    for i in range(num_models):
        share = rng.random((num_rows, 1)) * (0.2 + step * i)
        predictions[f"m{i}"] = share * truth + (1 - share) * rng.dirichlet(
            np.ones(num_classes), size=num_rows
        )
    return label, predictions


@pytest.mark.parametrize(("task", "num_classes"), [("binary", 2), ("multiclass", 4)])
def test_two_models_get_the_weights_that_a_fine_grid_finds(task, num_classes):
    label, predictions = classes(np.random.default_rng(1), 500, num_classes, 2)
    a, b = predictions.values()
    many = {name: np.tile(found, (1000, 1)) for name, found in predictions.items()}
    grid = np.linspace(0, 1, 2001)
    loss = [-np.log((w * a + (1 - w) * b)[np.arange(500), label]).mean() for w in grid]
    found = blend_weights(task, np.tile(label, 1000), many)
    assert 0.05 < found["m0"] < 0.95  # an inner optimum, otherwise the grid proves nothing
    assert found["m0"] == pytest.approx(grid[np.argmin(loss)], abs=1e-3)
    assert sum(found.values()) == pytest.approx(1)


def test_two_regressions_get_the_least_squares_weight_in_closed_form():
    rng = np.random.default_rng(2)
    label = 1e6 * rng.normal(size=400)
    a, b = label + 1e6 * rng.normal(size=400), label + 1.5e6 * rng.normal(size=400)
    expected = np.sum((b - label) * (b - a)) / np.sum((a - b) ** 2)
    assert blend_weights("regression", label, {"a": a, "b": b})["a"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_three_models_get_the_best_point_of_the_simplex(task):
    rng = np.random.default_rng(3)
    if task == "regression":
        label = rng.normal(size=300)
        predictions = {f"m{i}": label + (1 + 0.2 * i) * rng.normal(size=300) for i in range(3)}
    else:
        label, predictions = classes(rng, 300, 3, 3, step=0.02)

    def loss(weights):
        mixed = sum(w * p for w, p in zip(weights, predictions.values(), strict=True))
        if task == "regression":
            return np.mean((mixed - label) ** 2)
        return -np.log(mixed[np.arange(300), label]).mean()

    grid = [
        (i / 50, j / 50, (50 - i - j) / 50) for i, j in itertools.product(range(51), repeat=2) if i + j <= 50
    ]
    best = min(grid, key=loss)
    many = {name: np.concatenate([found] * 1000) for name, found in predictions.items()}
    found = blend_weights(task, np.tile(label, 1000), many)
    assert min(best) > 0
    assert list(found.values()) == pytest.approx(best, abs=0.03)
    assert loss(list(found.values())) <= loss(best) * (1 + 1e-6)


@pytest.mark.parametrize(("num_rows", "least"), [(30, 0.45), (30_000, 0.0)])
def test_few_rows_move_weights_little_from_equal_ones(num_rows, least):
    rng = np.random.default_rng(6)
    label = rng.normal(size=num_rows)
    a = label + rng.normal(size=num_rows)
    b = a + 0.3 * rng.normal(size=num_rows)  # adds noise alone
    found = blend_weights("regression", label, {"a": a, "b": b})["b"]
    assert least <= found < 0.5


def test_rows_of_a_rare_class_say_as_much_as_there_are_of_them():
    rng = np.random.default_rng(7)
    weights = []
    for share in (0.5, 0.01):
        label = (rng.random(4000) < share).astype(int)
        p = np.clip(share + 0.3 * share * (label - share) / (1 - share), 0.001, 0.999)
        a = np.stack([1 - p, p], axis=1)
        q = np.clip(p * np.exp(0.2 * rng.normal(size=4000)), 0.001, 0.999)
        b = np.stack([1 - q, q], axis=1)
        weights.append(blend_weights("binary", label, {"a": a, "b": b})["b"])
    assert weights[0] < 0.05 < weights[1]


@pytest.mark.parametrize("num_models", [2, 3])
@pytest.mark.parametrize("task", ["binary", "regression"])
def test_a_model_that_only_harms_gets_exactly_nothing(task, num_models):
    rng = np.random.default_rng(4)
    label = rng.integers(2, size=300)
    if task == "regression":
        good, harmful = label + 0.1 * rng.normal(size=300), -label + 5 * rng.normal(size=300)
    else:
        good = np.clip(np.eye(2)[label], 0.05, 0.95)
        harmful = 1 - good
    predictions = {"harmful": harmful, "good": good, "bad": harmful}
    names = ["harmful", "good", "bad"][:num_models]
    found = blend_weights(task, label, {name: predictions[name] for name in names})
    assert found == {name: float(name == "good") for name in names}


@pytest.mark.parametrize("seed", range(6))
def test_the_blend_is_no_worse_than_any_model_on_the_rows_it_was_fitted_to(seed):
    rng = np.random.default_rng(seed)
    label, predictions = classes(rng, 200, 3, 2 + seed % 4)
    weight = rng.exponential(size=200)
    found = blend_weights("multiclass", label, predictions, weight_N=weight)
    mixed = compute("multiclass", label, blend(predictions, found), weight)["log_loss"]
    alone = [compute("multiclass", label, p, weight)["log_loss"] for p in predictions.values()]
    assert mixed <= min(alone) + 1e-12


def test_weights_follow_the_rows_that_count():
    label = np.zeros(40)
    a, b = np.repeat([0.0, 1.0], 20), np.repeat([1.0, 0.0], 20)
    first_half = np.repeat([1.0, 0.0], 20)
    assert blend_weights("regression", label, {"a": a, "b": b}, weight_N=first_half) == {"a": 1.0, "b": 0.0}
    assert blend_weights("regression", label, {"a": a, "b": b})["a"] == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("num_models", [1, 2, 3])
def test_models_that_predict_the_same_share_alike(num_models):
    p = np.full((30, 2), 0.5)
    found = blend_weights("binary", np.arange(30) % 2, {f"m{i}": p for i in range(num_models)})
    assert found == pytest.approx({f"m{i}": 1 / num_models for i in range(num_models)})


def test_perfect_models_and_sure_mistakes_do_not_break_the_fit(recwarn):
    label = np.arange(40) % 2
    perfect = np.eye(2)[label]
    assert blend_weights("binary", label, {"a": perfect, "b": 1 - perfect}) == {"a": 1.0, "b": 0.0}
    assert blend_weights("regression", label, {"a": label, "b": label}) == {"a": 0.5, "b": 0.5}
    assert not recwarn.list


def test_the_blend_is_the_weighted_mean_and_ignores_models_without_weight():
    a, b = np.array([[0.2, 0.8]], dtype=np.float32), np.array([[0.6, 0.4]])
    assert blend({"a": a, "b": b}, {"a": 0.25, "b": 0.75}) == pytest.approx(np.array([[0.5, 0.5]]))
    assert blend({"b": b}, {"a": 0.0, "b": 1.0}) == pytest.approx(b)


def test_a_model_of_noise_gets_no_weight_and_each_one_with_errors_of_its_own_does():
    rng = np.random.default_rng(11)
    label = rng.normal(size=2000)
    good = {name: label + rng.normal(size=2000) for name in ("a", "b", "c")}
    weights = blend_weights("regression", label, {**good, "noise": 20 * rng.normal(size=2000)})
    assert weights["noise"] == 0 and all(0.25 < weights[name] < 0.42 for name in good)
