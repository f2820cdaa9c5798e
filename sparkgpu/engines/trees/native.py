"""Trains the optional engines `xgboost` and `lightgbm` on the prepared table, without a JVM.

The same trial as H2O XGBoost's: the same rows, parameters in the same spelling, categories as categories,
gaps as gaps, early stopping on the same rows, the same files left behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sparkgpu.config.keys import TreesConfig
from sparkgpu.engines.trees.curve import curve_as_csv
from sparkgpu.errors import DeviceError
from sparkgpu.host.processes import peak_resident_bytes
from sparkgpu.plan.plan import LanePlan, TrialSpec
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.files import write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.predictions import write_predictions
from sparkgpu.table.rows import Rows, read_rows
from sparkgpu.table.schema import SplitName, TableSchema

_SPLITS: tuple[SplitName, SplitName, SplitName] = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained booster, as a trial needs it.

    `predict` gives values (N,) or probabilities (N, C); `curve` holds (number of trees, metric on train,
    metric on valid), the metric being log loss or RMSE; `best_iteration` counts trees.
    """

    predict: Callable[[pd.DataFrame], NDArray[np.float64]]
    save: Callable[[Path], None]
    curve: list[tuple[int, float, float]]
    best_iteration: int
    native_parameters: dict[str, str]
    device_proof: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a booster is trained on and how; `progress` is told the number of trees so far."""

    config: TreesConfig
    schema: TableSchema
    seed: int
    threads: int
    frames: Mapping[SplitName, pd.DataFrame]
    rows: Mapping[SplitName, Rows]
    progress: Callable[[int], None]


class _Fit(Protocol):
    def __call__(self, job: Job) -> Fitted: ...


def _engine(name: str) -> _Fit:
    try:
        if name == "xgboost":
            from sparkgpu.engines.trees.native_xgboost import fit
        else:
            from sparkgpu.engines.trees.native_lightgbm import fit
    except ImportError as error:
        raise DeviceError(
            f"trees.engine = {name!r}: the package is not installed ({error}). "
            f"Run `pip install 'sparkgpu[{name}]'`."
        ) from None
    return fit


def run_trial(
    spec: TrialSpec,
    config: TreesConfig,
    schema: TableSchema,
    paths: RunPaths,
    lane: LanePlan,
    events: EventWriter,
) -> FitRecord:
    """Train, predict valid and test, and leave predictions, learning curve and model in the trial's folder.

    Raises `DeviceError` when the engine is not installed, or a GPU was asked for and not used.
    """
    fit = _engine(spec.engine)
    trial = paths.trial(spec.name)
    trial.root.mkdir(parents=True, exist_ok=True)
    with events.phase("reading the table", spec.name):
        rows = {split: read_rows(paths, schema, split, fold=spec.fold) for split in _SPLITS}
        frames = {split: _frame(rows[split], schema) for split in _SPLITS}
    ntrees = config.ntrees or 1
    with events.phase("training", spec.name):
        start = time.perf_counter()
        fitted = fit(
            Job(
                config=config,
                schema=schema,
                seed=spec.seed,
                threads=lane.tree_threads,
                frames=frames,
                rows=rows,
                progress=lambda trees: events.progress(spec.name, trees / ntrees, step=trees),
            )
        )
        fit_s = time.perf_counter() - start
    with events.phase("predicting", spec.name):
        start = time.perf_counter()
        predictions = {split: (rows[split].row_id_N, fitted.predict(frames[split])) for split in _SPLITS[1:]}
        predict_s = time.perf_counter() - start
        write_predictions(trial.predictions, predictions, schema)
    with events.phase("saving the model", spec.name):
        fitted.save(trial.root)
        write_text(trial.learning_curve, curve_as_csv(fitted.curve, schema))
    train_rows = len(rows["train"].row_id_N)
    return FitRecord(
        trial=spec.name,
        engine=spec.engine,
        fit_s=fit_s,
        predict_s=predict_s,
        train_rows=train_rows,
        train_rows_per_s=train_rows * (fitted.curve[-1][0] if fitted.curve else ntrees) / fit_s,
        peak_host_bytes=peak_resident_bytes(),
        best_iteration=fitted.best_iteration,
        native_parameters=fitted.native_parameters,
        device_proof=fitted.device_proof,
        parameters=config.model_dump(mode="json"),
    )


def _frame(rows: Rows, schema: TableSchema) -> pd.DataFrame:
    """Features as both boosters take them: float32 with NaN, and categories by their codes in the schema."""
    columns: dict[str, Any] = {
        feature.name: rows.numeric_NF[:, index] for index, feature in enumerate(schema.numeric)
    }
    for index, feature in enumerate(schema.categorical):
        kind = pd.CategoricalDtype(list(range(len(feature.levels))))
        columns[feature.name] = pd.Categorical.from_codes(rows.codes_NK[:, index], dtype=kind)
    return pd.DataFrame({feature.name: columns[feature.name] for feature in schema.features}, copy=False)
