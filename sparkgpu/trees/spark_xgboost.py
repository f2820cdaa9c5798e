"""The engine `xgboost` on a Spark cluster: one model over several executors, and over their GPUs.

XGBoost's own Spark estimator trains in a barrier stage on the table's files; no machine must hold the whole
table. This is how to spread one model over GPUs: H2O does not use them in a cloud of several nodes.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import FOLD, LABEL, ROW_ID, WEIGHT, SplitName, TableSchema
from sparkgpu.trees.boosting import BoostingModel, Trained, thinned
from sparkgpu.trees.xgboost_library import (
    METRICS,
    XGBOOST_FILE,
    XGBoost,
    device_of,
    objective_of,
    tree_parameters,
)
from sparkgpu.trials.engine import Platform, TreesTrial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IS_VALID = "__sparkgpu_valid"
_PREDICTED: tuple[SplitName, SplitName] = ("valid", "test")


class SparkXGBoost:
    """A cluster engine (`sparkgpu.trials.engine.ClusterEngine`): a worker in each slot of the executors."""

    def __init__(self, platform: Platform) -> None:
        assert platform.session is not None
        self._session = platform.session
        self._num_workers = platform.num_workers

    def made_progress(self) -> bool:
        """Never: its work is tasks of Spark, which are counted as such."""
        return False

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> BoostingModel:
        return XGBoost.load(folder, schema)

    def run(self, trial: TreesTrial) -> FitRecord:
        config, schema, events = trial.parameters, trial.schema, trial.events
        trial.paths.root.mkdir(parents=True, exist_ok=True)
        estimator = _estimator(trial, self._num_workers)
        rows = {split: _rows(self._session, trial, split) for split in ("train", *_PREDICTED)}
        train, valid = (
            rows[split].selectExpr("*", f"{split == 'valid'} AS {_IS_VALID}") for split in ("train", "valid")
        )
        with events.phase("training", trial.name):
            start = time.perf_counter()
            model = estimator.fit(train.union(valid))
            fit_s = time.perf_counter() - start
        booster = model.get_booster()
        device = device_of(booster, trial)
        with events.phase("predicting", trial.name):
            start = time.perf_counter()
            predictions = {
                split: _predict(model, rows[split], schema, trial.scratch / f"{trial.name}-{split}")
                for split in _PREDICTED
            }
            predict_s = time.perf_counter() - start
        summary = model.training_summary
        train_losses, valid_losses = (
            next(iter(history.values()))
            for history in (summary.train_objective_history, summary.validation_objective_history)
        )
        best = 1 + int(np.argmin(valid_losses))
        kept = booster[:best] if config.early_stopping_rounds else booster
        trained = Trained(
            save=lambda folder: kept.save_model(folder / XGBOOST_FILE),
            curve=thinned(train_losses, valid_losses, config.score_tree_interval),
            best_iteration=best,
            native_parameters={key: str(value) for key, value in tree_parameters(trial).items()},
            device_proof={"device": device, "num_workers": self._num_workers},
        )
        return trained.finish(
            trial, predictions, fit_s=fit_s, predict_s=predict_s, train_rows=rows["train"].count()
        )


def _estimator(trial: TreesTrial, num_workers: int) -> Any:
    from xgboost.spark import SparkXGBClassifier, SparkXGBRegressor

    config, schema = trial.parameters, trial.schema
    if config.tree_method == "exact":
        raise TrialError('trees.tree_method = "exact" has no distributed form; set it to "hist".')
    own: dict[str, Any] = {} if schema.classes else {"objective": objective_of(trial)}
    kind = SparkXGBClassifier if schema.classes else SparkXGBRegressor
    return kind(
        **tree_parameters(trial),
        n_estimators=config.ntrees,
        early_stopping_rounds=config.early_stopping_rounds or None,
        random_state=trial.spec.seed,
        features_col=[feature.name for feature in schema.features],
        label_col=LABEL,
        validation_indicator_col=_IS_VALID,
        weight_col=WEIGHT if schema.weighted else None,
        num_workers=num_workers,
        force_repartition=True,  # otherwise a worker may get a file with only validation rows
        feature_types=["c" if feature.kind == "categorical" else "q" for feature in schema.features],
        eval_metric=METRICS[schema.task],
        **own,
    )


def _rows(session: SparkSession, trial: TreesTrial, split: str) -> DataFrame:
    """The rows of a split."""
    from pyspark.sql import functions as F

    paths, schema, fold = trial.run, trial.schema, trial.spec.fold
    if fold is None or split == "test":
        found = session.read.parquet(str(paths.split(split)))
    else:
        whole = session.read.parquet(str(paths.split("train")))
        found = whole.where(F.col(FOLD) != fold if split == "train" else F.col(FOLD) == fold)
    own = [ROW_ID, LABEL, *([WEIGHT] if schema.weighted else [])]
    return found.select(*own, *(feature.name for feature in schema.features))


def _predict(
    model: Any, rows: DataFrame, schema: TableSchema, folder: Path
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Row ids, with values (N,) or probabilities (N, C), through files in `folder`, which is removed."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F

    predicted = model.transform(rows)
    if schema.classes:
        probabilities = vector_to_array(F.col("probability"))
        values = [probabilities.getItem(code).alias(f"p{code}") for code in range(len(schema.classes))]
    else:
        values = [F.col("prediction").cast("double").alias("p0")]
    predicted.select(ROW_ID, *values).write.parquet(str(folder))
    found = pq.read_table(folder)
    shutil.rmtree(folder)
    columns = np.column_stack([found[name].to_numpy() for name in found.column_names if name != ROW_ID])
    return found[ROW_ID].to_numpy().astype(np.int64), columns if schema.classes else columns[:, 0]
