"""What H2O XGBoost is asked for: the parameters of one trial, and the categories that it gets as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkgpu.core.config.values import MAX_DELTA_STEP
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import WEIGHT
from sparkgpu.trees.level_order import ordered_levels
from sparkgpu.trials.engine import TreesTrial

_DISTRIBUTIONS = {"binary": "bernoulli", "multiclass": "multinomial"}
_EVAL_METRICS = {"binary": "logloss", "multiclass": "mlogloss", "regression": "rmse"}


def level_order(trial: TreesTrial) -> dict[str, tuple[int, ...]]:
    """The categorical features that H2O gets as numbers, with their level codes in the order of these."""
    encoding = trial.parameters.categorical_encoding
    if encoding == "one_hot_internal":
        return {}
    if encoding == "label_encoder":
        return {
            feature.name: tuple(sorted(range(len(feature.levels)), key=feature.levels.__getitem__))
            for feature in trial.schema.categorical
        }
    return ordered_levels(trial.run.split("train"), trial.schema, trial.spec.fold)


def unit_of(trial: TreesTrial) -> float:
    """What H2O takes labels in: the mean label of the training rows for predictions that are exponentials.

    XGBoost 1.6 begins all predictions at 0.5 and would need hundreds of trees to come near a large mean.
    """
    if trial.schema.classes or trial.parameters.distribution == "gaussian":
        return 1.0
    rows = read_rows(trial.run, trial.schema, "train", fold=trial.spec.fold, features=False)
    return float(np.float32(np.average(rows.label_N, weights=rows.weight_N)))


def estimator_parameters(trial: TreesTrial) -> dict[str, Any]:
    """What `H2OXGBoostEstimator` is called with."""
    config, schema = trial.parameters, trial.schema
    on_gpu = config.on_gpu
    parameters: dict[str, Any] = {
        "ntrees": config.ntrees,
        "grow_policy": config.grow_policy,
        "max_depth": config.max_depth,
        "max_leaves": config.max_leaves,
        "categorical_encoding": "one_hot_internal",  # of the columns that do not come as numbers
        "learn_rate": config.learn_rate,
        "min_rows": config.min_rows,
        "sample_rate": config.sample_rate,
        "col_sample_rate": config.col_sample_rate,
        "col_sample_rate_per_tree": config.col_sample_rate_per_tree,
        "reg_lambda": config.reg_lambda,
        "reg_alpha": config.reg_alpha,
        "max_bins": config.max_bins,
        "distribution": _DISTRIBUTIONS.get(schema.task, config.distribution),
        # H2O turns "hist" on a GPU backend into gpu_hist; its client does not accept that word.
        "tree_method": "hist" if on_gpu else config.tree_method,
        "backend": "gpu" if on_gpu else "cpu",
        "nthread": trial.lane.tree_threads,
        "seed": trial.spec.seed,
        "score_tree_interval": config.score_tree_interval,
        # Only the native metric: H2O's own scoring in Java takes twice as long as the training.
        "score_eval_metric_only": True,
        "eval_metric": _EVAL_METRICS[schema.task],
    }
    if on_gpu:
        parameters["gpu_id"] = [0]
    if config.early_stopping_rounds:
        parameters["stopping_rounds"] = -(-config.early_stopping_rounds // config.score_tree_interval)
        parameters["stopping_metric"] = "custom"
        parameters["stopping_tolerance"] = 0.0
    if parameters["distribution"] in ("poisson", "gamma", "tweedie"):
        parameters["max_delta_step"] = MAX_DELTA_STEP
    if schema.weighted:
        parameters["weights_column"] = WEIGHT
    if schema.monotone:
        parameters["monotone_constraints"] = dict(schema.monotone)
    if schema.interactions:
        parameters["interaction_constraints"] = [list(group) for group in schema.interactions]
    return parameters
