"""H2O's trees as ONNX, from raw numbers and category words to predictions; onnxruntime alone can run them.

Inputs and outputs are those of a network's file (`sparkgpu.predict.export_onnx`). In between, words and
numbers become the booster's columns as H2O encodes them, and a TreeEnsembleRegressor adds up the leaves.

N rows, T columns of the booster, C classes.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkgpu.core.table.schema import Feature, TableSchema
from sparkgpu.h2o.mojo_booster import BoosterModel
from sparkgpu.h2o.mojo_file import Description
from sparkgpu.predict.exported_columns import MeansOf
from sparkgpu.predict.onnx_columns import input_name, inputs_of, mean_node, save_onnx, words_of

_OPSETS = {"": 18, "ai.onnx.ml": 3}
_IR_VERSION = 9
_LOG_LINKS = ("count:poisson", "reg:gamma", "reg:tweedie")
"""XGBoost's objectives whose leaves add up to the logarithm of the prediction."""


def trees_as_onnx(
    model: BoosterModel, schema: TableSchema, file: Path, means: MeansOf, temperature: float = 1.0
) -> None:
    """Write the trees to `file`; their probabilities are at `temperature`.

    Raises ImportError if onnx is not installed.
    """
    from onnx import TensorProto, helper

    graph = _Graph()
    graph.nodes += [
        mean_node(feature, means, input_name(feature)) for feature in schema.features if feature.means_of
    ]
    matrix = graph.columns(model.described, {feature.name: feature for feature in schema.features})
    output = graph.predictions(
        matrix, json.loads(model.booster.save_raw("json"))["learner"], schema, temperature
    )
    shape: list[str | int | None] = ["rows", len(schema.classes)] if schema.classes else ["rows"]
    outputs = [helper.make_tensor_value_info(output, TensorProto.DOUBLE, shape)]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "trees", inputs_of(schema), outputs, graph.constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()],
        ir_version=_IR_VERSION,
    )
    save_onnx(made, schema, file)


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def columns(self, described: Description, features: Mapping[str, Feature]) -> str:
        """The booster's columns (N, T): one for each word of the first features, then one for each other."""
        hot, others = [], []
        for place, name in enumerate(described.features):
            feature = features[name]
            column = input_name(feature)
            if feature.kind != "categorical":
                others.append(column)
                continue
            number = {word: code for code, word in enumerate(described.domains[name])}
            if place < described.num_one_hot:
                width = described.offsets[place + 1] - described.offsets[place]
                hot.append(self._hot(column, feature, number, width, sparse=described.sparse))
            else:
                others.append(self._place(column, feature, number))
        parts = hot
        if others:
            joined = self._add("Concat", others, axis=1)
            parts = [*hot, self._without_zeros(joined) if described.sparse else joined]
        return parts[0] if len(parts) == 1 else self._add("Concat", parts, axis=1)

    def _hot(
        self, column: str, feature: Feature, number: Mapping[str, int], width: int, *, sparse: bool
    ) -> str:
        """A column of 1 for the row's word, the last one for missing."""
        keys, found, other = words_of(feature, number, width - 1)
        code = self._add(
            "LabelEncoder", [column], domain="ai.onnx.ml",
            keys_strings=keys, values_int64s=[int(value) for value in found], default_int64=int(other),
        )  # fmt: skip
        values = self._constant([math.nan if sparse else 0.0, 1.0])
        cube = self._add("OneHot", [code, self._constant(width, whole=True), values], axis=-1)
        return self._add("Squeeze", [cube, self._constant([1], whole=True)])

    def _place(self, column: str, feature: Feature, number: Mapping[str, int]) -> str:
        """The place of the row's word, NaN for missing."""
        keys, found, other = words_of(feature, number, math.nan)
        return self._add(
            "LabelEncoder", [column], domain="ai.onnx.ml",
            keys_strings=keys, values_floats=[float(value) for value in found], default_float=float(other),
        )  # fmt: skip

    def _without_zeros(self, matrix: str) -> str:
        is_zero = self._add("Equal", [matrix, self._constant(0.0)])
        return self._add("Where", [is_zero, self._constant(math.nan), matrix])

    def predictions(
        self, matrix: str, learner: Mapping[str, Any], schema: TableSchema, temperature: float
    ) -> str:
        """Probabilities (N, C), or values (N,), in float64."""
        margin = self._add(
            "TreeEnsembleRegressor", [matrix], domain="ai.onnx.ml", **_ensemble(learner, schema)
        )
        wide = self._add("Cast", [margin], to=11)  # float64
        if temperature != 1:
            by = self._add("Cast", [self._constant(temperature)], to=11)
            wide = self._add("Div", [wide, by])
        if schema.task == "multiclass":
            return self._add("Softmax", [wide], "probabilities", axis=1)
        if schema.task == "regression":
            if learner["objective"]["name"] in _LOG_LINKS:
                wide = self._add("Exp", [wide])
            return self._add("Squeeze", [wide, self._constant([1], whole=True)], "prediction")
        second = self._add("Sigmoid", [wide])
        first = self._add("Sigmoid", [self._add("Neg", [wide])])
        return self._add("Concat", [first, second], "probabilities", axis=1)

    def _add(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"sparkgpu_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _constant(self, value: Any, *, whole: bool = False) -> str:
        import numpy as np
        from onnx import numpy_helper

        name = f"sparkgpu_constant_{len(self.constants)}"
        array = np.asarray(value, dtype=np.int64 if whole else np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name


def _ensemble(learner: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
    """The attributes of the operator: all nodes of all trees, one list for each of their properties."""
    model = learner["gradient_booster"]["model"]
    found: dict[str, list[Any]] = defaultdict(list)

    def add(**values: Any) -> None:
        for name, value in values.items():
            found[name].append(value)

    for number, (tree, group) in enumerate(zip(model["trees"], model["tree_info"], strict=True)):
        left, right = tree["left_children"], tree["right_children"]
        for node, (begin, end) in enumerate(zip(left, right, strict=True)):
            is_leaf, value = begin < 0, tree["split_conditions"][node]
            add(
                nodes_treeids=number,
                nodes_nodeids=node,
                nodes_featureids=0 if is_leaf else tree["split_indices"][node],
                nodes_modes="LEAF" if is_leaf else "BRANCH_LT",
                nodes_values=0.0 if is_leaf else value,
                nodes_truenodeids=0 if is_leaf else begin,
                nodes_falsenodeids=0 if is_leaf else end,
                nodes_missing_value_tracks_true=0 if is_leaf else int(tree["default_left"][node]),
            )
            if is_leaf:
                add(target_treeids=number, target_nodeids=node, target_ids=group, target_weights=value)
    outputs = len(schema.classes) if schema.task == "multiclass" else 1
    base = base_margins(learner, schema)
    return {**found, "n_targets": outputs, "aggregate_function": "SUM", "base_values": base}


def base_margins(learner: Mapping[str, Any], schema: TableSchema) -> list[float]:
    """What is added to the leaves of each class, or of the only output."""
    base = [float(text) for text in str(learner["learner_model_param"]["base_score"]).strip("[]").split(",")]
    if schema.task == "binary":
        base = [math.log(value / (1.0 - value)) for value in base]
    if learner["objective"]["name"] in _LOG_LINKS:
        base = [math.log(value) for value in base]
    return base * len(schema.classes) if schema.task == "multiclass" and len(base) == 1 else base
