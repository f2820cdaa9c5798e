"""Networks of a regression whose target is not gaussian: the loss, the unit, and the level of predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from planted import fit, plant
from sklearn.metrics import mean_tweedie_deviance

from sparkgpu.core.config.values import POWERS, Distribution
from sparkgpu.core.table.rows import read_rows
from sparkgpu.neural.model import load_model
from sparkgpu.neural.training.objective import Objective


@pytest.mark.parametrize("distribution", ["gaussian", "poisson", "tweedie", "gamma"])
def test_the_loss_is_the_deviance_that_scikit_learn_knows(distribution: Distribution) -> None:
    drawn = np.random.default_rng(0)
    label_N = drawn.gamma(2.0, 300.0, size=500)
    objective = Objective.fit("regression", label_N, None, distribution)
    outputs_BMC = torch.from_numpy(drawn.normal(scale=0.3, size=(500, 1, 1)))
    target_N = objective.targets(label_N)
    loss = float(objective.loss(outputs_BMC, target_N).mean())
    assert loss == pytest.approx(float(objective.loss_of_mean(outputs_BMC, target_N).mean()), rel=1e-5)
    expected = mean_tweedie_deviance(
        label_N, objective.predict(outputs_BMC).numpy(), power=POWERS[distribution]
    )
    found = objective.metric_of(loss)
    assert found == pytest.approx(expected**0.5 if distribution == "gaussian" else expected, rel=1e-4)
    exact = torch.full((500, 1, 1), 0.25)
    assert float(objective.loss(exact, objective.targets(objective.predict(exact).numpy())).max()) < 1e-5


@pytest.mark.parametrize("distribution", ["lognormal", "poisson", "tweedie", "gamma"])
def test_a_network_of_a_distribution_learns_amounts_in_any_unit(distribution: str, tmp_path: Path) -> None:
    drawn = np.random.default_rng(4)
    paths, schema = plant(tmp_path / "signal", "regression")
    parts = [read_rows(paths, schema, split, features=False) for split in ("train", "valid", "test")]
    order_N = np.argsort(np.concatenate([part.row_id_N for part in parts]))
    signal_N = (np.concatenate([part.label_N for part in parts])[order_N] - 5000) / 1000
    label_N = 1e6 * drawn.gamma(3.0, np.exp(signal_N / 2))
    paths, schema = plant(tmp_path / "amounts", "regression", label_N=label_N)
    found = fit(paths, schema, "cpu", distribution=distribution, epochs=20)
    valid = read_rows(paths, schema, "valid", features=False).label_N
    predicted = found.predictions["valid"][1]
    assert np.corrcoef(np.log(predicted), np.log(valid))[0, 1] > 0.7
    assert predicted.min() > 0 and predicted.max() <= label_N.max()
    # Without its correction lognormal would be too low by the mean of what it cannot know.
    assert predicted.mean() == pytest.approx(valid.mean(), rel=1e-6 if distribution == "lognormal" else 0.2)
    loaded = load_model(found.folder).predict(read_rows(paths, schema, "test"))
    np.testing.assert_array_equal(loaded, found.test)
    assert json.loads((found.folder / "model.json").read_text())["target"]["distribution"] == distribution
