"""The engine `xgboost`: the library itself, for machines where it serves better than H2O's copy of 1.6."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost
from numpy.typing import NDArray

from sparkgpu.engines.trees.native import Fitted, Job
from sparkgpu.errors import DeviceError

_OBJECTIVES = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}
_METRICS = {"binary": "logloss", "multiclass": "mlogloss", "regression": "rmse"}


class _Progress(xgboost.callback.TrainingCallback):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch % self._job.config.score_tree_interval == 0:
            self._job.progress(epoch + 1)
        return False


def fit(job: Job) -> Fitted:
    """Train as `sparkgpu.engines.trees.native.run_trial` asks."""
    config, schema = job.config, job.schema
    on_gpu = config.tree_method == "gpu_hist"
    parameters: dict[str, Any] = {
        "objective": _OBJECTIVES[schema.task],
        "eval_metric": _METRICS[schema.task],
        "max_depth": config.max_depth,
        "eta": config.learn_rate,
        "min_child_weight": config.min_rows,
        "subsample": config.sample_rate,
        "colsample_bylevel": config.col_sample_rate,
        "colsample_bytree": config.col_sample_rate_per_tree,
        "lambda": config.reg_lambda,
        "alpha": config.reg_alpha,
        "max_bin": config.max_bins,
        "tree_method": "hist" if on_gpu else config.tree_method,
        "device": "cuda" if on_gpu else "cpu",
        "nthread": job.threads,
        "seed": job.seed,
    }
    if schema.task == "multiclass":
        parameters["num_class"] = len(schema.classes)
    if parameters["tree_method"] == "exact":
        parameters.pop("max_bin")
    train = _training_matrix(job)
    valid = xgboost.DMatrix(
        job.frames["valid"], job.rows["valid"].label_N, weight=job.rows["valid"].weight_N,
        enable_categorical=True, nthread=job.threads,
    )  # fmt: skip
    log: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        parameters,
        train,
        num_boost_round=config.ntrees or 1,
        evals=[(train, "train"), (valid, "valid")],
        evals_result=log,
        early_stopping_rounds=config.early_stopping_rounds or None,
        callbacks=[_Progress(job)],
        verbose_eval=False,
    )
    used = json.loads(booster.save_config())["learner"]["generic_param"]
    if on_gpu and not str(used.get("device", "")).startswith("cuda"):
        raise DeviceError(
            f"gpu_hist was asked for, but xgboost trained on {used.get('device')!r}. Install a build of "
            'it with CUDA, or set trees.tree_method = "hist".'
        )
    metric = _METRICS[schema.task]
    every = config.score_tree_interval
    pairs = list(zip(log["train"][metric], log["valid"][metric], strict=True))
    curve = [
        (step, *pair) for step, pair in enumerate(pairs, start=1) if step % every == 0 or step == len(pairs)
    ]
    best = 1 + int(np.argmin(log["valid"][metric]))
    end = best if config.early_stopping_rounds else len(pairs)

    def predict(frame: pd.DataFrame) -> NDArray[np.float64]:
        matrix = xgboost.DMatrix(frame, enable_categorical=True, nthread=job.threads)
        found = booster.predict(matrix, iteration_range=(0, end)).astype(np.float64)
        return np.column_stack([1.0 - found, found]) if schema.task == "binary" else np.asarray(found)

    def save(folder: Path) -> None:
        booster.save_model(folder / "model.ubj")

    return Fitted(
        predict=predict,
        save=save,
        curve=curve,
        best_iteration=best,
        native_parameters={key: str(value) for key, value in parameters.items()},
        device_proof={"device": used.get("device"), "xgboost": xgboost.__version__},
    )


def _training_matrix(job: Job) -> xgboost.QuantileDMatrix | xgboost.DMatrix:
    """Bins made once from the frame where the method works on bins; no second copy of the table."""
    common: dict[str, Any] = {
        "label": job.rows["train"].label_N, "weight": job.rows["train"].weight_N,
        "enable_categorical": True, "nthread": job.threads,
    }  # fmt: skip
    if job.config.tree_method in ("hist", "gpu_hist"):
        return xgboost.QuantileDMatrix(job.frames["train"], max_bin=job.config.max_bins, **common)
    return xgboost.DMatrix(job.frames["train"], **common)
