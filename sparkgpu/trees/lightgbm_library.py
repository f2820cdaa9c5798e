"""The engine `lightgbm`, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sparkgpu.core.config.values import MAX_DELTA_STEP
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
from sparkgpu.trials.engine import TreesTrial

_METRICS = {"binary": "binary_logloss", "multiclass": "multi_logloss", "regression": "rmse"}
_MOST_LEAVES = 127
LIGHTGBM_FILE = "model.txt"


class LightGBM(BoostingEngine):
    """Trees of LightGBM, which grow leaf by leaf."""

    def fit(self, trial: TreesTrial, splits: Mapping[SplitName, Split], progress: Progress) -> Fitted:
        config, schema = trial.parameters, trial.schema
        metric = _METRICS[schema.task]
        train, valid = (
            lightgbm.Dataset(split.features, split.label_N, weight=split.weight_N)
            for split in (splits["train"], splits["valid"])
        )
        valid.set_reference(train)
        log: dict[str, dict[str, list[float]]] = {}

        def report(env: Any) -> None:
            valid = next(found[2] for found in env.evaluation_result_list if found[0] == "valid")
            if progress(env.iteration + 1, valid):
                raise lightgbm.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

        callbacks: list[Any] = [lightgbm.record_evaluation(log), report]
        if config.early_stopping_rounds:
            callbacks.append(lightgbm.early_stopping(config.early_stopping_rounds, verbose=False))
        booster = lightgbm.train(
            _parameters(trial), train, num_boost_round=config.ntrees, valid_sets=[train, valid],
            valid_names=["train", "valid"], callbacks=callbacks,
        )  # fmt: skip
        best = 1 + int(np.argmin(log["valid"][metric]))
        end = best if config.early_stopping_rounds else len(log["valid"][metric])
        return Fitted(
            predict=lambda frame: _predict(booster, frame, schema, end),
            save=lambda folder: booster.save_model(folder / LIGHTGBM_FILE, num_iteration=end),
            curve=thinned(log["train"][metric], log["valid"][metric], config.score_tree_interval),
            best_iteration=best,
            native_parameters={key: str(value) for key, value in booster.params.items()},
            device_proof={"device": "cpu", "lightgbm": lightgbm.__version__},
        )

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> BoostingModel:
        booster = lightgbm.Booster(model_file=folder / LIGHTGBM_FILE)
        return BoostingModel(
            schema=schema,
            apply=lambda frame: _predict(booster, frame, schema, None),
            contributions=lambda rows: np.reshape(
                booster.predict(feature_frame(rows, schema), pred_contrib=True),
                (len(rows.label_N), -1, len(schema.features) + 1),
            ),
            importance=lambda: dict(
                zip(booster.feature_name(), booster.feature_importance("gain"), strict=True)
            ),
        )


def _parameters(trial: TreesTrial) -> dict[str, Any]:
    """The configuration with the library's names.

    Without `max_leaves`, `max_depth` becomes the number of leaves that such a tree can have, at most 127,
    since deeper trees would only memorise. 0, which means no limit, becomes 127.
    """
    config, schema = trial.parameters, trial.schema
    by_depth = min(2**config.max_depth, _MOST_LEAVES) if config.max_depth else _MOST_LEAVES
    parameters: dict[str, Any] = {
        "objective": schema.task,
        "metric": _METRICS[schema.task],
        "num_leaves": max(2, config.max_leaves or by_depth),
        "learning_rate": config.learn_rate,
        "min_sum_hessian_in_leaf": max(config.min_rows, 1e-3),
        "bagging_fraction": config.sample_rate,
        "bagging_freq": 1,
        "feature_fraction": config.col_sample_rate_per_tree,
        "feature_fraction_bynode": config.col_sample_rate,
        "lambda_l2": config.reg_lambda,
        "lambda_l1": config.reg_alpha,
        "max_bin": config.max_bins,
        "num_threads": trial.lane.tree_threads,
        "seed": trial.spec.seed,
        "deterministic": True,
        "force_row_wise": True,  # the automatic choice depends on timing, which differs from run to run
        "verbosity": -1,
    }
    if schema.task == "multiclass":
        parameters["num_class"] = len(schema.classes)
    if not schema.classes and config.distribution != "gaussian":
        parameters |= {"objective": config.distribution, "max_delta_step": MAX_DELTA_STEP}
    if schema.monotone:
        parameters["monotone_constraints"] = list(schema.signs)
    if schema.interactions:
        parameters["interaction_constraints"] = schema.meeting
    return parameters


def _predict(
    booster: lightgbm.Booster, frame: pd.DataFrame, schema: TableSchema, end: int | None
) -> NDArray[np.float64]:
    return both_classes(np.asarray(booster.predict(frame, num_iteration=end)), schema)
