"""A network as ONNX predicts what the network predicts, with onnxruntime alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import OTHER_LEVEL, Feature, FeatureKind, TableSchema, Task
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.network import build_net, find_network, input_shape
from sparkgpu.neural.training.objective import Objective
from sparkgpu.predict.export_onnx import network_as_onnx

ROWS = 900
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")


def schema_of(task: Task) -> TableSchema:
    def feature(name: str, source: str, *levels: str) -> Feature:
        kind: FeatureKind = "categorical" if levels else "numeric"
        return Feature(name=name, source=source, kind=kind, pipeline=name, levels=levels)

    return TableSchema(
        source="made",
        target="y",
        task=task,
        classes=() if task == "regression" else ("a", "b", "c") if task == "multiclass" else ("no", "yes"),
        features=(
            feature("size_m", "size [m]"),
            feature("zone", "zone", "north", "south", OTHER_LEVEL),
            feature("tied", "tied"),
            feature("street", "street", *(f"s{i}" for i in range(60))),
            feature("constant", "constant"),
        ),
        rows=ROWS,
        splits={"train": ROWS},
        fingerprint="",
    )


def rows_of(schema: TableSchema) -> Rows:
    drawn = np.random.default_rng(0)
    numeric_NF = drawn.normal(size=(ROWS, 3)).astype(np.float32) * [1e3, 1, 1]
    numeric_NF[:, 1] = np.round(numeric_NF[:, 1])
    numeric_NF[:, 2] = 4.0
    numeric_NF[::7, 0] = np.nan
    codes_NK = np.stack([drawn.integers(-1, 3, ROWS), drawn.integers(-1, 60, ROWS)], axis=1)
    return Rows(
        row_id_N=np.arange(ROWS),
        label_N=np.zeros(ROWS),
        weight_N=None,
        numeric_NF=numeric_NF.astype(np.float32),
        codes_NK=codes_NK.astype(np.int32),
    )


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
    schema = schema_of(task)
    rows = rows_of(schema)
    model = network(name, schema, rows)
    file = tmp_path / "network.onnx"
    network_as_onnx(model, schema, file)
    session = onnxruntime.InferenceSession(file)
    feed = {"size [m]": rows.numeric_NF[:, [0]], "tied": rows.numeric_NF[:, [1]]}
    feed["constant"] = rows.numeric_NF[:, [2]]
    zones = np.array(["north", "south", "never seen", ""], dtype=object)
    feed["zone"] = zones[rows.codes_NK[:, [0]]]
    streets = np.array([*schema.categorical[1].levels, "no such street"], dtype=object)
    feed["street"] = streets[rows.codes_NK[:, [1]]]
    (found,) = session.run(None, feed)
    np.testing.assert_allclose(found, model.predict(rows), atol=1e-5)
    (one,) = session.run(None, {name: values[:1] for name, values in feed.items()})
    np.testing.assert_allclose(one, found[:1], atol=1e-6)
    assert session.get_modelmeta().custom_metadata_map["target"] == "y"
