"""The engine `lightgbm`, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sparkgpu.engines.trees.native import Fitted, Job
from sparkgpu.errors import DeviceError

_OBJECTIVES = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}
_METRICS = {"binary": "binary_logloss", "multiclass": "multi_logloss", "regression": "rmse"}


def fit(job: Job) -> Fitted:
    """Train as `sparkgpu.engines.trees.native.run_trial` asks.

    LightGBM grows leaf by leaf: `max_depth` becomes a number of leaves that such a tree could have, capped
    where deep trees would only memorise. Raises `DeviceError` when a GPU was asked for.
    """
    config, schema = job.config, job.schema
    if config.tree_method == "gpu_hist":
        raise DeviceError(
            "gpu_hist was asked for, but LightGBM trains on the CPU here: its package has no GPU build. Set "
            'trees.tree_method = "hist", or trees.engine = "xgboost".'
        )
    parameters: dict[str, Any] = {
        "objective": _OBJECTIVES[schema.task],
        "metric": _METRICS[schema.task],
        "num_leaves": min(2 ** (config.max_depth or 6), 127),
        "learning_rate": config.learn_rate,
        "min_sum_hessian_in_leaf": max(config.min_rows or 0.0, 1e-3),
        "bagging_fraction": config.sample_rate,
        "bagging_freq": 1,
        "feature_fraction": config.col_sample_rate_per_tree,
        "feature_fraction_bynode": config.col_sample_rate,
        "lambda_l2": config.reg_lambda,
        "lambda_l1": config.reg_alpha,
        "max_bin": config.max_bins,
        "num_threads": job.threads,
        "seed": job.seed,
        "deterministic": True,
        "force_row_wise": True,  # the automatic choice is made by timing, which is never the same twice
        "verbosity": -1,
    }
    if schema.task == "multiclass":
        parameters["num_class"] = len(schema.classes)
    train = lightgbm.Dataset(
        job.frames["train"], job.rows["train"].label_N, weight=job.rows["train"].weight_N, free_raw_data=True
    )
    valid = lightgbm.Dataset(
        job.frames["valid"], job.rows["valid"].label_N, weight=job.rows["valid"].weight_N, reference=train
    )
    log: dict[str, dict[str, list[float]]] = {}
    every = config.score_tree_interval

    def progress(env: Any) -> None:
        if env.iteration % every == 0:
            job.progress(env.iteration + 1)

    callbacks: list[Any] = [lightgbm.record_evaluation(log), progress]
    if config.early_stopping_rounds:
        callbacks.append(lightgbm.early_stopping(config.early_stopping_rounds, verbose=False))
    booster = lightgbm.train(
        parameters, train, num_boost_round=config.ntrees or 1, valid_sets=[train, valid],
        valid_names=["train", "valid"], callbacks=callbacks,
    )  # fmt: skip
    metric = _METRICS[schema.task]
    pairs = list(zip(log["train"][metric], log["valid"][metric], strict=True))
    best = 1 + int(np.argmin(log["valid"][metric]))
    end = best if config.early_stopping_rounds else len(pairs)

    def predict(frame: pd.DataFrame) -> NDArray[np.float64]:
        found = np.asarray(booster.predict(frame, num_iteration=end), dtype=np.float64)
        return np.column_stack([1.0 - found, found]) if schema.task == "binary" else found

    def save(folder: Path) -> None:
        booster.save_model(folder / "model.txt", num_iteration=end)

    return Fitted(
        predict=predict,
        save=save,
        curve=[(n, *pair) for n, pair in enumerate(pairs, start=1) if n % every == 0 or n == len(pairs)],
        best_iteration=best,
        native_parameters={key: str(value) for key, value in booster.params.items()},
        device_proof={"device": "cpu", "lightgbm": lightgbm.__version__},
    )
