"""A network as ONNX predicts what the network predicts, with onnxruntime alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_rows_to_export import inputs_of, made_rows, schema_of

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema, Task
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.network import build_net, find_network, input_shape
from sparkgpu.neural.training.objective import Objective
from sparkgpu.predict.export_onnx import network_as_onnx

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")


def network(name: str, schema: TableSchema, rows: Rows) -> TabularModel:
    torch.manual_seed(1)
    architecture, _, embedding = name.partition(", ")
    asked = {"neural.architecture": architecture, "neural.hidden": [32, 32]}
    if architecture == "tabm":
        asked |= {"neural.members": 3, "neural.num_bins": 8, "neural.embedding_dim": 4}
    if embedding:
        asked |= {"neural.number_embedding": embedding}
    parameters = resolve(
        config_io.load(options=asked), preset="fast", strategy="single", size=TableSize.of(schema),
        device="cpu", tree_device=lambda engine: "cpu",
    ).neural  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    transform = find_network(parameters).transform.fit(torch.from_numpy(rows.numeric_NF), generator=generator)
    levels = tuple(len(feature.levels) for feature in schema.categorical)
    net = build_net(parameters, input_shape(parameters, transform, levels, schema.num_outputs))
    for path, parameter in net.named_parameters():
        if not path.endswith("frequency"):  # those of training, of which the fast ones are the hardest
            torch.nn.init.normal_(parameter, std=0.3)
    objective = Objective(task=schema.task, mean=3.0, std=2.0, low=-100.0, high=100.0)
    return TabularModel(transform, net, objective).eval()


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("tabm", "binary"),
        ("tabm, cosine", "regression"),
        pytest.param("tabm, piecewise", "regression", marks=pytest.mark.slow),
        ("realmlp", "multiclass"),
        pytest.param("mlp", "regression", marks=pytest.mark.slow),
        pytest.param("resnet", "multiclass", marks=pytest.mark.slow),
    ],
)
def test_onnx_predicts_what_the_network_predicts(name: str, task: Task, tmp_path: Path) -> None:
    schema, rows = schema_of(task), made_rows()
    model = network(name, schema, rows)
    file = tmp_path / "network.onnx"
    network_as_onnx(model, schema, file)
    session = onnxruntime.InferenceSession(file)
    feed = inputs_of(rows)
    (found,) = session.run(None, feed)
    np.testing.assert_allclose(found, model.predict(rows), atol=1e-5)
    (one,) = session.run(None, {name: values[:1] for name, values in feed.items()})
    np.testing.assert_allclose(one, found[:1], atol=1e-6)
    assert session.get_modelmeta().custom_metadata_map["target"] == "y"
