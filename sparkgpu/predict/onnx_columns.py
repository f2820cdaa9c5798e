"""What exported files in ONNX share: an input for each feature, words as strings, and the metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from sparkgpu.core.table.schema import OTHER_LEVEL, Feature, TableSchema

NumberT = TypeVar("NumberT", int, float)


def input_name(feature: Feature) -> str:
    """The user's column, or the name in the run's table of a feature made from one."""
    return feature.name if feature.part else feature.source


def inputs_of(schema: TableSchema) -> list[Any]:
    """The inputs (N, 1) of a file, in the order of the features."""
    from onnx import TensorProto, helper

    kinds = {"categorical": TensorProto.STRING, "numeric": TensorProto.FLOAT}
    return [
        helper.make_tensor_value_info(input_name(feature), kinds[feature.kind], ["rows", 1])
        for feature in schema.features
    ]


def words_of(
    feature: Feature, number: Mapping[str, NumberT], missing: NumberT
) -> tuple[list[str], list[NumberT], NumberT]:
    """The words of a category with their numbers, and the number of any other word.

    An empty word is a missing value, unless it is a level.
    """
    other = number.get(OTHER_LEVEL, missing) if OTHER_LEVEL in feature.levels else missing
    found = {"": missing}
    found.update((level, number.get(level, missing)) for level in feature.levels)
    return list(found), list(found.values()), other


def save_onnx(model: Any, schema: TableSchema, file: Path) -> None:
    """Write a model with the table's target and classes in its metadata."""
    import onnx

    about = {"classes": json.dumps(schema.classes), "target": schema.target, "task": schema.task}
    onnx.helper.set_model_props(model, about)
    onnx.checker.check_model(model)
    onnx.save(model, file)
