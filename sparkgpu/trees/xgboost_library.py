"""The engine `xgboost`: the library itself, newer than H2O's copy of 1.6.

A table that does not fit the lane's memory is trained on from disk (`trees/from_disk`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost
from numpy.typing import NDArray

from sparkgpu.core.config.values import MAX_DELTA_STEP
from sparkgpu.core.errors import DeviceError, TrialError
from sparkgpu.core.host.cuda_packages import xgboost_with_cuda
from sparkgpu.core.plan.host_memory import beyond_memory
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.trees.boosting import (
    BoostingEngine,
    BoostingModel,
    Fitted,
    Progress,
    Split,
    both_classes,
    feature_frame,
    thinned,
)
from sparkgpu.trees.from_disk import run_from_disk
from sparkgpu.trees.level_order import with_means
from sparkgpu.trials.engine import TreesTrial

_OBJECTIVES = {
    "binary": "binary:logistic", "multiclass": "multi:softprob", "gaussian": "reg:squarederror",
    "poisson": "count:poisson", "gamma": "reg:gamma", "tweedie": "reg:tweedie",
}  # fmt: skip
METRICS = {"binary": "logloss", "multiclass": "mlogloss", "regression": "rmse"}
XGBOOST_FILE = "model.ubj"


class XGBoost(BoostingEngine):
    """Trees of XGBoost, on the CPU or the lane's GPU."""

    @staticmethod
    def as_numbers(schema: TableSchema) -> Collection[str]:
        """Sets of many levels would tell trees the labels that a feature of mean targets keeps from them."""
        return with_means(schema)

    def run(self, trial: TreesTrial) -> FitRecord:
        schema, config = trial.schema, trial.parameters
        reason = None
        if self.platform.ranks.count == 1 and not config.on_gpu and config.tree_method == "hist":
            reason = beyond_memory(schema.rows, len(schema.features), trial.lane.memory_bytes)
        if reason is None:
            return super().run(trial)
        return run_from_disk(trial, reason, lambda *matrices: self._trained(trial, *matrices))

    def fit(self, trial: TreesTrial, splits: Mapping[SplitName, Split], progress: Progress) -> Fitted:
        train, valid = _matrix(splits["train"], trial, binned=True), _matrix(splits["valid"], trial)
        return self._trained(trial, train, valid, progress)

    def _trained(
        self, trial: TreesTrial, train: xgboost.DMatrix, valid: xgboost.DMatrix, progress: Progress
    ) -> Fitted:
        config, schema, threads = trial.parameters, trial.schema, trial.lane.tree_threads
        if config.tree_method == "exact" and config.max_depth == 0:
            raise TrialError(
                'trees.max_depth = 0 with trees.tree_method = "exact": xgboost needs a depth for such trees. '
                'Set trees.max_depth, or set trees.tree_method = "hist".'
            )
        if config.tree_method == "exact" and self.platform.ranks.count > 1:
            raise TrialError(
                'trees.tree_method = "exact" grows trees in one process, and these executors grow them '
                'together. Set it to "hist".'
            )
        parameters: dict[str, Any] = {
            **tree_parameters(trial), "objective": objective_of(trial),
            "eval_metric": METRICS[schema.task], "nthread": threads, "seed": trial.spec.seed,
        }  # fmt: skip
        if schema.task == "multiclass":
            parameters["num_class"] = len(schema.classes)
        log: dict[str, dict[str, list[float]]] = {}
        booster = xgboost.train(
            parameters,
            train,
            num_boost_round=config.ntrees,
            evals=[(train, "train"), (valid, "valid")],
            evals_result=log,
            early_stopping_rounds=config.early_stopping_rounds or None,
            callbacks=[_Progress(progress)],
            verbose_eval=False,
        )
        device = device_of(booster, trial)
        metric = METRICS[schema.task]
        best = 1 + int(np.argmin(log["valid"][metric]))
        kept = booster[:best] if config.early_stopping_rounds else booster
        return Fitted(
            predict=lambda frame: _predict(kept, frame, schema, threads),
            save=lambda folder: kept.save_model(folder / XGBOOST_FILE),
            curve=thinned(log["train"][metric], log["valid"][metric], config.score_tree_interval),
            best_iteration=best,
            native_parameters={key: str(value) for key, value in parameters.items()},
            device_proof={
                "device": device,
                "xgboost": xgboost.__version__,
                "num_ranks": self.platform.ranks.count,
            },
        )

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> BoostingModel:
        booster = xgboost.Booster(model_file=folder / XGBOOST_FILE)
        numbers = numbers_of(booster, schema)
        return BoostingModel(
            schema=schema,
            as_numbers=numbers,
            apply=lambda frame: _predict(booster, frame, schema, None),
            contributions=lambda rows: booster.predict(
                xgboost.DMatrix(feature_frame(rows, schema, numbers), enable_categorical=True),
                pred_contribs=True,
                strict_shape=True,
            ),
            importance=lambda: booster.get_score(importance_type="total_gain"),
        )


def numbers_of(booster: xgboost.Booster, schema: TableSchema) -> Collection[str]:
    """The categories that a trained model takes as numbers."""
    kinds = dict(zip(booster.feature_names or (), booster.feature_types or (), strict=True))
    return [feature.name for feature in schema.categorical if kinds.get(feature.name) != "c"]


class _Progress(xgboost.callback.TrainingCallback):
    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        (losses,) = evals_log["valid"].values()
        return self._progress(epoch + 1, losses[-1])


def tree_parameters(trial: TreesTrial) -> dict[str, Any]:
    """How trees grow, in names that all of XGBoost's interfaces have; there, too, depth 0 means no limit."""
    config, schema = trial.parameters, trial.schema
    parameters: dict[str, Any] = {
        "grow_policy": config.grow_policy,
        "max_depth": config.max_depth,
        "max_leaves": config.max_leaves,
        "learning_rate": config.learn_rate,
        "min_child_weight": config.min_rows,
        "subsample": config.sample_rate,
        "colsample_bylevel": config.col_sample_rate,
        "colsample_bytree": config.col_sample_rate_per_tree,
        "reg_lambda": config.reg_lambda,
        "reg_alpha": config.reg_alpha,
        "tree_method": "hist" if config.on_gpu else config.tree_method,
        "device": "cuda" if config.on_gpu else "cpu",
    }
    if config.tree_method != "exact":
        parameters["max_bin"] = config.max_bins
    if config.distribution != "gaussian":
        parameters["max_delta_step"] = MAX_DELTA_STEP
    if schema.monotone:
        parameters["monotone_constraints"] = f"({','.join(map(str, schema.signs))})"
    if schema.interactions:
        parameters["interaction_constraints"] = json.dumps(schema.meeting)
    return parameters


def objective_of(trial: TreesTrial) -> str:
    return _OBJECTIVES[trial.schema.task if trial.schema.classes else trial.parameters.distribution]


def device_of(booster: xgboost.Booster, trial: TreesTrial) -> str | None:
    """The device on which XGBoost trained. Raises `DeviceError` if a GPU was asked for and not used."""
    used: str | None = json.loads(booster.save_config())["learner"]["generic_param"].get("device")
    if trial.parameters.on_gpu and not str(used).startswith("cuda"):
        raise DeviceError(
            f"gpu_hist was asked for, but xgboost trained on {used!r}. Run `{xgboost_with_cuda()}` where it "
            'trains, or set trees.tree_method = "hist".'
        )
    return used


def _matrix(split: Split, trial: TreesTrial, *, binned: bool = False) -> xgboost.DMatrix:
    """The rows; if `binned`, as bins, made once, if the method uses them: without a second copy.

    Not for a GPU: XGBoost makes the bins of rows in host memory on the CPU and copies them, in nine times the
    processor time. Of plain rows the GPU makes them itself, in parts that its memory holds.
    """
    common: dict[str, Any] = {
        "label": split.label_N, "weight": split.weight_N,
        "enable_categorical": True, "nthread": trial.lane.tree_threads,
    }  # fmt: skip
    if binned and trial.parameters.tree_method == "hist":
        return xgboost.QuantileDMatrix(split.features, max_bin=trial.parameters.max_bins, **common)
    return xgboost.DMatrix(split.features, **common)


def _predict(
    booster: xgboost.Booster, frame: pd.DataFrame, schema: TableSchema, threads: int | None
) -> NDArray[np.float64]:
    return both_classes(
        booster.predict(xgboost.DMatrix(frame, enable_categorical=True, nthread=threads)), schema
    )
