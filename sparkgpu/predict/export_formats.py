"""The formats in which other programs read a trained model: how each is written, and how it is read again.

A file predicts as the run does: it holds the words of the categories, and the run's temperature. Only H2O's
MOJO cannot hold one.

N rows, C classes.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.files import read_json, write_json, write_text
from sparkgpu.core.rundir.metrics_json import DoneTrial
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import OTHER_LEVEL, Feature, TableSchema
from sparkgpu.predict.exported_columns import MeansOf, encoding, typed_words
from sparkgpu.predict.onnx_columns import input_name
from sparkgpu.score.calibration import scaled

if TYPE_CHECKING:
    import pandas as pd
    import xgboost

_ONNX_ROWS = 4_096  # of a batch: the first layers are wide


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trial to export: its files, its table, and how it was trained."""

    folder: Path
    schema: TableSchema
    means: MeansOf
    trial: DoneTrial

    @property
    def temperature(self) -> float:
        """By which the run scales the model's probabilities."""
        return self.trial.temperature or 1.0


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format: the engines that have it, its ending, and how far a prediction may be from the run's.

    `write` makes the file or folder, `predict` applies it to rows of the run's table as another program
    would. `needs` are the modules for both, which the extra of sparkgpu with the format's name installs.
    """

    engines: tuple[str, ...]
    ending: str
    tolerance: float
    write: Callable[[Trained, Path], None]
    predict: Callable[[Path, Trained, Rows], NDArray[np.float64]]
    needs: tuple[str, ...] = ()


def _write_mojo(trained: Trained, file: Path) -> None:
    from sparkgpu.h2o.mojo import MOJO

    shutil.copyfile(trained.folder / MOJO, file)


def _predict_mojo(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    """By H2O's own scoring library, in Java; the file gives probabilities at temperature 1."""
    from sparkgpu.h2o.mojo import MojoModel

    found = MojoModel(file, trained.schema).predict(rows)
    return found if trained.trial.temperature is None else scaled(found, trained.temperature)


def _write_booster(trained: Trained, file: Path) -> None:
    import xgboost

    from sparkgpu.h2o.mojo import MOJO
    from sparkgpu.h2o.mojo_booster import BoosterModel
    from sparkgpu.trees.xgboost_library import XGBOOST_FILE

    if trained.trial.engine == "xgboost":
        booster = xgboost.Booster(model_file=trained.folder / XGBOOST_FILE)
        booster.set_attr(encoding=encoding(trained.schema, trained.means))
    else:
        model = BoosterModel.read(trained.folder / MOJO, trained.schema)
        booster = model.named()
        booster.set_attr(encoding=encoding(trained.schema, trained.means, model.described))
    if trained.temperature != 1:
        _scale_margins(booster, trained)
    booster.save_model(file)


def _scale_margins(booster: xgboost.Booster, trained: Trained) -> None:
    """Divide what the leaves add up to by the temperature; XGBoost has no function for it."""
    from sparkgpu.predict.export_onnx_trees import base_margins

    by = trained.temperature
    model = json.loads(booster.save_raw("json"))
    learner = model["learner"]
    for tree in learner["gradient_booster"]["model"]["trees"]:
        tree["split_conditions"] = [
            value / by if child < 0 else value
            for value, child in zip(tree["split_conditions"], tree["left_children"], strict=True)
        ]
    base = [margin / by for margin in base_margins(learner, trained.schema)]
    if trained.schema.task == "binary":
        base = [1 / (1 + math.exp(-margin)) for margin in base]
    written = learner["learner_model_param"]["base_score"]
    learner["learner_model_param"]["base_score"] = str(base) if written.startswith("[") else str(base[0])
    booster.load_model(bytearray(json.dumps(model).encode()))


def _predict_booster(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    import xgboost

    from sparkgpu.h2o.mojo import MOJO
    from sparkgpu.h2o.mojo_booster import BoosterModel, matrix_of
    from sparkgpu.trees.boosting import both_classes, feature_frame
    from sparkgpu.trees.xgboost_library import numbers_of

    booster = xgboost.Booster(model_file=file)
    if trained.trial.engine == "xgboost":
        numbers = numbers_of(booster, trained.schema)
        data = xgboost.DMatrix(feature_frame(rows, trained.schema, numbers), enable_categorical=True)
    else:
        described = BoosterModel.read(trained.folder / MOJO, trained.schema).described
        matrix = matrix_of(rows, described, trained.schema)
        data = xgboost.DMatrix(matrix, feature_names=booster.feature_names)
    return both_classes(booster.predict(data), trained.schema)


def _write_lightgbm(trained: Trained, file: Path) -> None:
    """LightGBM finds the words of a category column by the categories that the file names.

    It reads no further than the end of the parameters, and its Python package the last line.
    """
    import lightgbm

    from sparkgpu.trees.lightgbm_library import LIGHTGBM_FILE

    booster = lightgbm.Booster(model_file=trained.folder / LIGHTGBM_FILE)
    booster.pandas_categorical = [
        typed_words(feature.levels, feature.type) for feature in trained.schema.categorical
    ]
    if trained.temperature != 1:
        for tree in booster.dump_model()["tree_info"]:
            number = tree["tree_index"]
            for leaf in range(tree["num_leaves"]):
                value = booster.get_leaf_output(number, leaf) / trained.temperature
                booster.set_leaf_output(number, leaf, value)
    booster.save_model(file)
    text = file.read_text(encoding="utf-8")
    end = "\nend of parameters\n"
    line = f"{end}encoding:{encoding(trained.schema, trained.means)}\n"
    write_text(file, text.replace(end, line, 1))


def _predict_lightgbm(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    import lightgbm

    from sparkgpu.trees.boosting import both_classes

    found = lightgbm.Booster(model_file=file).predict(_words_frame(rows, trained.schema))
    return both_classes(np.asarray(found), trained.schema)


def _write_catboost(trained: Trained, file: Path) -> None:
    import catboost

    from sparkgpu.trees.catboost_library import CATBOOST_FILE

    model = catboost.CatBoost().load_model(trained.folder / CATBOOST_FILE)
    model.get_metadata()["encoding"] = encoding(trained.schema, trained.means)
    scale, bias = model.get_scale_and_bias()
    by = trained.temperature
    model.set_scale_and_bias(scale / by, (np.asarray(bias) / by).tolist())
    model.save_model(file)


def _predict_catboost(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    from sparkgpu.trees.boosting import feature_frame
    from sparkgpu.trees.catboost_library import predictions_of_file

    return predictions_of_file(file, feature_frame(rows, trained.schema), trained.schema)


def _words_frame(rows: Rows, schema: TableSchema) -> pd.DataFrame:
    """Rows as another program has them: with the words of the categories."""
    from sparkgpu.trees.boosting import feature_frame

    frame = feature_frame(rows, schema)
    words = {
        feature.name: frame[feature.name].cat.rename_categories(typed_words(feature.levels, feature.type))
        for feature in schema.categorical
    }
    return frame.assign(**words)


def _write_torch(trained: Trained, folder: Path) -> None:
    from sparkgpu.neural.model import TENSORS

    folder.mkdir()
    shutil.copyfile(trained.folder / TENSORS, folder / TENSORS)
    saved = read_json(trained.folder / "model.json")
    saved["target"]["temperature"] = trained.temperature
    saved["encoding"] = json.loads(encoding(trained.schema, trained.means))
    write_json(folder / "model.json", saved)


def _predict_torch(folder: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    from sparkgpu.neural.model import load_model

    return load_model(folder).predict(rows)


def _write_onnx(trained: Trained, file: Path) -> None:
    if trained.trial.engine == "h2o-xgboost":
        from sparkgpu.h2o.mojo import MOJO
        from sparkgpu.h2o.mojo_booster import BoosterModel
        from sparkgpu.predict.export_onnx_trees import trees_as_onnx

        model = BoosterModel.read(trained.folder / MOJO, trained.schema)
        trees_as_onnx(model, trained.schema, file, trained.means, trained.temperature)
        return
    from sparkgpu.neural.model import load_model
    from sparkgpu.predict.export_onnx import network_as_onnx

    network_as_onnx(load_model(trained.folder), trained.schema, file, trained.means, trained.temperature)


def _predict_onnx(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    feed: dict[str, NDArray[Any]] = {}
    for place, feature in enumerate(trained.schema.numeric):
        if feature.means_of is None:
            feed[input_name(feature)] = rows.numeric_NF[:, [place]]
    for place, feature in enumerate(trained.schema.categorical):
        words = np.array([*feature.levels, ""], dtype=object)
        feed[input_name(feature)] = words[rows.codes_NK[:, [place]]]
        if made := [one for one in trained.schema.numeric if one.means_of == feature.name]:
            rarer_N = feed[input_name(feature)][:, 0] == OTHER_LEVEL
            feed[input_name(feature)][rarer_N, 0] = _rarer_words(trained, feature, made, rows)[rarer_N]
    parts = [
        session.run(None, {name: values[begin : begin + _ONNX_ROWS] for name, values in feed.items()})[0]
        for begin in range(0, len(rows.row_id_N), _ONNX_ROWS)
    ]
    return np.concatenate(parts)


def _rarer_words(
    trained: Trained, feature: Feature, made: Sequence[Feature], rows: Rows
) -> NDArray[np.object_]:
    """Words (N,) without a level of their own, which the table does not hold, by their mean targets."""
    levels, _ = trained.means[made[0].name]
    values = zip(*(trained.means[one.name][1] for one in made), strict=True)
    word_of = {key: word for key, word in zip(values, levels, strict=False) if word not in feature.levels}
    value_NV = rows.numeric_NF[:, [trained.schema.numeric.index(one) for one in made]]
    return np.array([word_of.get(tuple(key), OTHER_LEVEL) for key in value_NV.tolist()], dtype=object)


FORMATS: Mapping[str, Format] = {
    "mojo": Format(
        engines=("h2o-xgboost",), ending=".zip", tolerance=1e-6, write=_write_mojo, predict=_predict_mojo
    ),
    "xgboost": Format(
        engines=("h2o-xgboost", "xgboost"), ending=".ubj", tolerance=1e-6,
        write=_write_booster, predict=_predict_booster, needs=("xgboost",),
    ),
    "lightgbm": Format(
        engines=("lightgbm",), ending=".txt", tolerance=1e-6,
        write=_write_lightgbm, predict=_predict_lightgbm, needs=("lightgbm",),
    ),
    "catboost": Format(
        engines=("catboost",), ending=".cbm", tolerance=1e-6,
        write=_write_catboost, predict=_predict_catboost, needs=("catboost",),
    ),
    "torch": Format(
        engines=("torch",), ending="", tolerance=1e-5, write=_write_torch, predict=_predict_torch
    ),
    "onnx": Format(
        engines=("torch", "h2o-xgboost"), ending=".onnx", tolerance=1e-4,
        write=_write_onnx, predict=_predict_onnx,
        needs=("onnx", "onnxscript", "onnxruntime"),
    ),
}  # fmt: skip
