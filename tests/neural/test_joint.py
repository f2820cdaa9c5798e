"""One network for several targets: what its loss counts, and the networks of one target in it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from sparkgpu.core.config import toml
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.registry.networks import NETWORKS
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.network import build_net, find_network, input_shape
from sparkgpu.neural.training.joint import JointObjective, models_of

ROWS = 400
NAN = float("nan")


def schema_of(target: str, *classes: str, weights: tuple[float, ...] = ()) -> TableSchema:
    task = "regression" if not classes else "binary" if len(classes) == 2 else "multiclass"
    return TableSchema(
        source="t", target=target, task=task, classes=classes, features=(), rows=ROWS, splits={},
        fingerprint="", class_weights=weights,
    )  # fmt: skip


SCHEMAS = [schema_of("price"), schema_of("kind", "a", "b", "c"), schema_of("sold", "no", "yes")]


def labels() -> np.ndarray:
    """A value in thousands with gaps, three classes, and two of which one is rare."""
    random = np.random.default_rng(3)
    label_NT = np.column_stack(
        [
            random.normal(5_000, 900, ROWS),
            random.integers(0, 3, ROWS),
            random.random(ROWS) < 0.05,
        ]
    )
    label_NT[::4, 0] = NAN
    label_NT[1::7, 1] = NAN
    return label_NT


def parameters(architecture: str) -> NeuralParameters:
    config = toml.load(
        options={"neural.architecture": architecture, "neural.hidden": [16, 16], "neural.dropout": 0.0}
    )
    size = TableSize(task="regression", train_rows=ROWS, num_features=5, num_classes=0)
    return resolve(
        config, preset="fast", strategy="single", size=size, device="cpu", tree_device=lambda name: "cpu"
    ).neural


def constants(objective: JointObjective, label_NT: np.ndarray) -> torch.Tensor:
    """The raw outputs (N, 1, C) of the best constant predictions."""
    outputs = []
    for schema, label_N in zip(SCHEMAS, label_NT.T, strict=True):
        if not schema.classes:
            outputs.append(torch.zeros(1))
            continue
        share_C = np.bincount(label_N[~np.isnan(label_N)].astype(int)) / np.isfinite(label_N).sum()
        outputs.append(torch.from_numpy(np.log(share_C)).float())
    return torch.cat(outputs).expand(len(label_NT), 1, -1)


def test_the_best_constant_prediction_of_each_target_has_the_loss_one() -> None:
    label_NT = labels()
    joint = JointObjective.fit_all(SCHEMAS, label_NT, None, parameters("mlp"))
    target_NT = joint.targets(label_NT)
    outputs_NMC = constants(joint, label_NT)
    for place, head in enumerate(joint.heads):
        own = head.loss("loss_of_mean", outputs_NMC, target_NT[:, place])
        assert own.mean().item() == pytest.approx(1, rel=1e-4)
    mean = joint.loss_of_mean(outputs_NMC, target_NT).mean().item()
    assert joint.metric_of(mean) == pytest.approx(1, rel=1e-4)


def test_a_row_without_a_label_moves_the_head_of_that_target_not_at_all() -> None:
    joint = JointObjective.fit_all(SCHEMAS, labels(), None, parameters("mlp"))
    outputs_BMC = torch.randn(2, 1, joint.num_outputs, requires_grad=True)
    target_BT = joint.targets(np.array([[NAN, 2, 1], [5_500, NAN, 0]]))
    joint.loss(outputs_BMC, target_BT).sum().backward()
    price, kind, sold = (head.of(outputs_BMC.grad) for head in joint.heads)
    assert price[0].abs().max() == 0 < price[1].abs().max()
    assert kind[1].abs().max() == 0 < kind[0].abs().max()
    assert (sold.abs().sum((1, 2)) > 0).all() and outputs_BMC.grad.isfinite().all()


def test_weights_of_classes_count_for_their_target_alone() -> None:
    weights = (0.5, 10.0)
    schemas = [*SCHEMAS[:2], schema_of("sold", "no", "yes", weights=weights)]
    joint = JointObjective.fit_all(schemas, labels(), None, parameters("mlp"))
    plain = JointObjective.fit_all(SCHEMAS, labels(), None, parameters("mlp"))
    outputs_BMC = torch.zeros(2, 1, joint.num_outputs)
    target_BT = joint.targets(np.array([[NAN, NAN, 0.0], [NAN, NAN, 1.0]]))
    first, second = joint.loss(outputs_BMC, target_BT).tolist()
    assert second / first == pytest.approx(weights[1] / weights[0])
    alone_BT = joint.targets(np.array([[5_000, 1, NAN]]))
    assert joint.loss(outputs_BMC[:1], alone_BT) == plain.loss(outputs_BMC[:1], alone_BT)


@pytest.mark.parametrize("architecture", [entry.name for entry in NETWORKS.own() if entry.joint])
def test_the_network_of_one_target_is_the_joint_one_with_its_head_alone(architecture: str) -> None:
    torch.manual_seed(0)
    settings = parameters(architecture)
    joint = JointObjective.fit_all(SCHEMAS, labels(), None, settings)
    raw_NF = torch.randn(ROWS, 3)
    transform = find_network(settings).transform.fit(raw_NF, generator=torch.Generator().manual_seed(1))
    shape = input_shape(settings, transform, (4, 2), joint.num_outputs)
    model = TabularModel(transform, build_net(settings, shape), joint).eval()
    for parameter in model.net.parameters():  # also those that begin at zero
        torch.nn.init.normal_(parameter, std=0.3)
    before = copy.deepcopy(model.state_dict())
    codes_NK = torch.randint(-1, 2, (ROWS, 2), dtype=torch.int32)
    with torch.no_grad():
        together_NC = model(raw_NF, codes_NK)
        each = [one.eval()(raw_NF, codes_NK) for one in models_of(model, settings, shape)]
    alone_NC = torch.cat([one if one.ndim > 1 else one.unsqueeze(1) for one in each], dim=1)
    torch.testing.assert_close(alone_NC, together_NC, rtol=1e-5, atol=1e-6)
    assert together_NC.std(0).min() > 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
