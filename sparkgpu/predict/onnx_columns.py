"""What exported files in ONNX share: an input for each feature, words as strings, and the metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sparkgpu.core.table.schema import OTHER_LEVEL, Feature, TableSchema
from sparkgpu.predict.exported_columns import MeansOf, encoding, typed_words

NumberT = TypeVar("NumberT", int, float)


def input_name(feature: Feature) -> str:
    """The user's column, or the name in the run's table of a feature made from one."""
    return feature.name if feature.part else feature.source


def inputs_of(schema: TableSchema) -> list[Any]:
    """The inputs (N, 1) of a file, in the order of the features; mean targets are looked up in the file."""
    from onnx import TensorProto, helper

    kinds = {"categorical": TensorProto.STRING, "numeric": TensorProto.FLOAT}
    return [
        helper.make_tensor_value_info(input_name(feature), kinds[feature.kind], ["rows", 1])
        for feature in schema.features
        if feature.means_of is None
    ]


def mean_node(feature: Feature, means: MeansOf, output: str) -> Any:
    """A node that looks up the mean target of the words of a column."""
    from onnx import helper

    levels, values = means[feature.name]
    number = spelled(levels, values, feature.type)
    return helper.make_node(
        "LabelEncoder", [feature.source], [output], domain="ai.onnx.ml",
        keys_strings=list(number), values_floats=list(number.values()), default_float=values[-1],
    )  # fmt: skip


def words_of(
    feature: Feature, number: Mapping[str, NumberT], missing: NumberT
) -> tuple[list[str], list[NumberT], NumberT]:
    """The words of a category with their numbers, and the number of any other word.

    An empty word is a missing value, unless it is a level.
    """
    other = number.get(OTHER_LEVEL, missing) if OTHER_LEVEL in feature.levels else missing
    found = {"": missing}
    numbers = [number.get(level, missing) for level in feature.levels]
    found.update(spelled(feature.levels, numbers, feature.type))
    return list(found), list(found.values()), other


def spelled(levels: Sequence[str], numbers: Iterable[NumberT], kind: str | None) -> dict[str, NumberT]:
    """The number of each level by its text, and by what Python writes for it, also in a column with gaps."""
    found = dict(zip(levels, numbers, strict=False))
    for level, word in zip(levels, typed_words(levels, kind), strict=True):
        if not isinstance(word, str):
            found.setdefault(str(word), found[level])
            found.setdefault(str(float(word)), found[level])
    return found


def save_onnx(model: Any, schema: TableSchema, file: Path) -> None:
    """Write a model with the table's target, classes and columns in its metadata."""
    import onnx

    inputs = tuple(feature for feature in schema.features if feature.means_of is None)
    about = {
        "classes": json.dumps(schema.classes), "target": schema.target, "task": schema.task,
        "encoding": encoding(schema.with_features(inputs), {}),
    }  # fmt: skip
    onnx.helper.set_model_props(model, about)
    onnx.checker.check_model(model)
    onnx.save(model, file)
