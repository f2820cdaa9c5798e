"""The engine `catboost`, on the CPU or the lane's GPU. Its trees are symmetric unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import catboost
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sparkgpu.core.errors import DeviceError, TrialError
from sparkgpu.core.host.gpus import find_gpus
from sparkgpu.core.plan.gpu_memory import tree_bytes
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.trees.boosting import (
    BoostingEngine,
    BoostingModel,
    Fitted,
    Progress,
    Split,
    feature_frame,
    thinned,
)
from sparkgpu.trials.engine import TreesTrial

_LOSSES = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}
_GROWTH = {"symmetric": "SymmetricTree", "depthwise": "Depthwise", "lossguide": "Lossguide"}
_MOST_GPU_BINS = 255
_MOST_DEPTH = 16
_MOST_GPU_PART = 0.95  # CatBoost's own default
CATBOOST_FILE = "model.cbm"


class CatBoost(BoostingEngine):
    """Trees of CatBoost, which encodes categories by ordered target statistics of its own."""

    def fit(self, trial: TreesTrial, splits: Mapping[SplitName, Split], progress: Progress) -> Fitted:
        config, schema = trial.parameters, trial.schema
        loss = _LOSSES[schema.task]
        model = catboost.CatBoost(_parameters(trial))
        train, valid = (_pool(splits[split].features, schema, splits[split]) for split in ("train", "valid"))
        # CatBoost has no callbacks on a GPU.
        callbacks = None if config.on_gpu else [_Progress(progress)]
        try:
            model.fit(train, eval_set=valid, callbacks=callbacks)
        except catboost.CatBoostError as error:
            first = str(error).splitlines()[0]
            if config.on_gpu and "CUDA" in first:
                raise DeviceError(
                    f"gpu_hist was asked for, but CatBoost cannot use the GPU ({first}). Set tree_method = "
                    '"hist" to train on the CPU.'
                ) from error
            raise TrialError(f"{trial.name}: CatBoost failed: {first}") from error
        used = model.get_all_params()
        if config.on_gpu and used.get("task_type") != "GPU":
            raise DeviceError(
                f"gpu_hist was asked for, but CatBoost trained on {used.get('task_type')!r}. Set "
                'tree_method = "hist" to train on the CPU.'
            )
        log = model.get_evals_result()
        return Fitted(
            predict=lambda frame: _predict(model, frame, schema),
            save=lambda folder: model.save_model(folder / CATBOOST_FILE, format="cbm"),
            curve=thinned(log["learn"][loss], log["validation"][loss], config.score_tree_interval),
            best_iteration=1 + int(np.argmin(log["validation"][loss])),
            native_parameters={key: str(value) for key, value in used.items()},
            device_proof={
                "device": trial.lane.device if used.get("task_type") == "GPU" else "cpu",
                "task_type": used.get("task_type"),
                "catboost": catboost.__version__,
            },
        )

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> BoostingModel:
        model = _loaded(folder / CATBOOST_FILE)

        def contributions(rows: Rows) -> NDArray[Any]:
            pool = _pool(feature_frame(rows, schema), schema)
            found = model.get_feature_importance(pool, type="ShapValues")
            return np.reshape(found, (len(rows.label_N), -1, len(schema.features) + 1))

        return BoostingModel(
            schema=schema,
            apply=lambda frame: _predict(model, frame, schema),
            # Those of other trees do not add up (catboost 1.2.10; its issues 1703 and 2136).
            contributions=contributions if model.get_all_params()["grow_policy"] == "SymmetricTree" else None,
            importance=lambda: dict(zip(model.feature_names_, model.get_feature_importance(), strict=True)),
        )


class _Progress:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def after_iteration(self, info: Any) -> bool:
        """Whether to go on; CatBoost counts iterations from 1."""
        (losses,) = info.metrics["validation"].values()
        return not self._progress(info.iteration, losses[-1])


def _parameters(trial: TreesTrial) -> dict[str, Any]:
    """The configuration with the library's names.

    `max_depth` 0, which means no limit, becomes the library's own limit. A tree that grows leaf by leaf has
    at most `max_leaves`. The library adds noise to the gain of each cut, less and less from tree to tree.
    """
    config, schema = trial.parameters, trial.schema
    parameters: dict[str, Any] = {
        "loss_function": _LOSSES[schema.task],
        "iterations": config.ntrees,
        "learning_rate": config.learn_rate,
        "depth": min(config.max_depth or _MOST_DEPTH, _MOST_DEPTH),
        "grow_policy": _GROWTH[config.grow_policy],
        "l2_leaf_reg": config.reg_lambda,
        "border_count": min(config.max_bins, _MOST_GPU_BINS) - 1,
        "random_seed": trial.spec.seed,
        "thread_count": trial.lane.tree_threads,
        "task_type": "GPU" if config.on_gpu else "CPU",
        "use_best_model": bool(config.early_stopping_rounds),
        "allow_writing_files": False,
        "logging_level": "Silent",
    }
    if config.sample_rate < 1.0:
        parameters |= {"bootstrap_type": "Bernoulli", "subsample": config.sample_rate}
    else:
        parameters["bootstrap_type"] = "No"
    if config.col_sample_rate_per_tree * config.col_sample_rate < 1.0:  # drawn anew for each level
        parameters["rsm"] = config.col_sample_rate_per_tree * config.col_sample_rate
    if config.on_gpu:
        parameters |= {"devices": "0", "gpu_ram_part": _gpu_part(trial)}  # the one that this process sees
    if config.early_stopping_rounds:
        parameters |= {"od_type": "Iter", "od_wait": config.early_stopping_rounds}
    if config.grow_policy == "lossguide" and config.max_leaves:
        parameters["max_leaves"] = config.max_leaves
    if config.grow_policy != "symmetric":
        parameters["min_data_in_leaf"] = max(1, round(config.min_rows))
    if schema.task == "multiclass":
        parameters["classes_count"] = len(schema.classes)
    if schema.monotone:
        parameters["monotone_constraints"] = dict(schema.monotone)
    return parameters


def _gpu_part(trial: TreesTrial) -> float:
    """The part of the GPU's free memory that CatBoost takes for itself as it begins.

    Beside a network this is what the plan gives to trees; by itself it would leave a network 5 %.
    """
    lane = trial.lane
    if lane.in_turn or trial.cores_are_free():
        return _MOST_GPU_PART
    card = next((gpu for gpu in find_gpus().gpus if gpu.uuid == lane.cuda_visible_devices), None)
    if card is None or card.memory_bytes is None:
        return _MOST_GPU_PART
    free = max(card.memory_bytes - card.used_bytes, 1)
    return min(tree_bytes(trial.schema, trial.parameters) / free, _MOST_GPU_PART)


def _pool(frame: pd.DataFrame, schema: TableSchema, split: Split | None = None) -> catboost.Pool:
    """Features as CatBoost takes them: its categories are whole numbers, -1 where a value is missing."""
    categorical = [feature.name for feature in schema.categorical]
    codes = {name: frame[name].cat.codes.astype(np.int32) for name in categorical}
    label_N, weight_N = (split.label_N, split.weight_N) if split else (None, None)
    return catboost.Pool(frame.assign(**codes), label_N, weight=weight_N, cat_features=categorical)


def predictions_of_file(file: Path, frame: pd.DataFrame, schema: TableSchema) -> NDArray[np.float64]:
    """What the model in a file predicts: values (N,) or probabilities (N, C)."""
    return _predict(_loaded(file), frame, schema)


def _loaded(file: Path) -> catboost.CatBoost:
    model = catboost.CatBoost()
    model.load_model(file, format="cbm")
    return model


def _predict(model: catboost.CatBoost, frame: pd.DataFrame, schema: TableSchema) -> NDArray[np.float64]:
    kind = "Probability" if schema.classes else "RawFormulaVal"
    return np.asarray(model.predict(_pool(frame, schema), prediction_type=kind), dtype=np.float64)
