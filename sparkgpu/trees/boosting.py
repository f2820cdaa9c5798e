"""Trains with a boosting library in this process, with the prepared table in memory and no JVM.

Several ranks may train one model, each with its share of the rows; the first one writes what belongs to all.

The trial is the same as for H2O XGBoost: the same rows, the same names of parameters, categories and missing
values kept, early stopping on the same rows, the same files. Each library is a subclass with its own fit and
load.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.values import POWERS
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.processes import peak_resident_bytes
from sparkgpu.core.plan.time_limit import fit_s_of_trees
from sparkgpu.core.rundir.curve import CurvePoint, curve_as_csv
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import Predictions, read_predictions, write_predictions
from sparkgpu.core.table.rows import Rows, read_rows
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.trials.engine import Model, Platform, PrunedError, Ranks, TreesTrial

_SPLITS: tuple[SplitName, SplitName, SplitName] = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class Split:
    """The rows of one split in the form for a library."""

    features: pd.DataFrame
    label_N: NDArray[Any]
    weight_N: NDArray[np.float32] | None


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained booster; `predict` gives values (N,) or probabilities (N, C).

    `curve` holds (number of trees, metric on train, metric on valid); the metric is log loss or RMSE.
    `best_iteration` counts trees.
    """

    predict: Callable[[pd.DataFrame], NDArray[np.float64]]
    save: Callable[[Path], object]
    curve: list[tuple[int, float, float]]
    best_iteration: int
    native_parameters: dict[str, str]
    device_proof: dict[str, Any]
    """`device` is ``cpu``, or begins with ``cuda``."""

    def write(self, trial: TreesTrial, predictions: Predictions) -> None:
        """Write the trial's predictions, model and learning curve."""
        with trial.events.phase("saving the model", trial.name):
            write_predictions(trial.paths.predictions, predictions, trial.schema)
            self.save(trial.paths.root)
            points = [CurvePoint(step=step, elapsed_s=None, train=a, valid=b) for step, a, b in self.curve]
            metric = "log_loss" if trial.schema.classes else "rmse"
            write_text(trial.paths.learning_curve, curve_as_csv(metric, points))

    def record(self, trial: TreesTrial, *, fit_s: float, predict_s: float, train_rows: int) -> FitRecord:
        return FitRecord(
            trial=trial.name,
            engine=trial.spec.engine,
            fit_s=fit_s,
            predict_s=predict_s,
            train_rows=train_rows,
            train_rows_per_s=train_rows * self.curve[-1][0] / fit_s,
            peak_host_bytes=peak_resident_bytes(),
            best_iteration=self.best_iteration,
            most_steps=trial.parameters.ntrees,
            native_parameters=self.native_parameters,
            device_proof=self.device_proof,
            on_gpu=str(self.device_proof.get("device")).startswith("cuda"),
            parameters=trial.parameters.model_dump(mode="json"),
        )


class Progress:
    """Told after each round, it reports the number of trees now and then and says when time is up.

    The first rank decides for all.
    """

    def __init__(self, trial: TreesTrial, ranks: Ranks) -> None:
        self._trial = trial
        self._ranks = ranks
        self._until = fit_until(trial)
        self.out_of_time = False
        self.pruned: PrunedError | None = None

    def __call__(self, trees: int, valid: float) -> bool:
        """Whether training has to end after so many rounds, with this loss on the validation rows."""
        trial = self._trial
        if (trees - 1) % trial.parameters.score_tree_interval == 0:
            metric = "log_loss" if trial.schema.classes else "rmse"
            done = trees / trial.parameters.ntrees
            trial.events.progress(trial.name, done, step=trees, metric=metric, value=valid)
            if trial.watch is not None:
                try:
                    trial.watch(trees, valid)
                except PrunedError as error:  # a library would hide it among its own
                    self.pruned = error
        is_over = self._until is not None and time.monotonic() >= self._until
        if self._until is not None:
            is_over = self._ranks.told(is_over)
        self.out_of_time |= is_over and trees < trial.parameters.ntrees
        return self.out_of_time or self.pruned is not None

    def timed(self, fit: Callable[[], Fitted]) -> tuple[Fitted, float]:
        """What `fit` trains, and the seconds that it takes. Raises `PrunedError` if a search gave it up."""
        with self._trial.events.phase("training", self._trial.name):
            start = time.perf_counter()
            fitted = fit()
            if self.pruned is not None:
                raise self.pruned
            return fitted, time.perf_counter() - start


class BoostingEngine(ABC):
    """An engine (`sparkgpu.trials.engine.Engine`) around a library of gradient boosting."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    @staticmethod
    def as_numbers(schema: TableSchema) -> Collection[str]:
        """The categories that this library gets as numbers, by their codes."""
        return ()

    @abstractmethod
    def fit(self, trial: TreesTrial, splits: Mapping[SplitName, Split], progress: Progress) -> Fitted:
        """Train on split train and stop early by split valid, or as soon as `progress` says so."""

    @staticmethod
    @abstractmethod
    def load(folder: Path, schema: TableSchema) -> Model:
        """The model in a trial's folder."""

    def run(self, trial: TreesTrial) -> FitRecord:
        paths, events, schema, ranks = trial.paths, trial.events, trial.schema, self.platform.ranks
        share = (ranks.rank, ranks.count)
        if trial.parameters.on_gpu and not ENGINES.find(trial.spec.engine).on_gpu:
            raise DeviceError(
                f"gpu_hist was asked for, but {trial.spec.engine} trains on the CPU here: no GPU build. "
                'Set trees.tree_method = "hist", or trees.engine = "xgboost".'
            )
        paths.root.mkdir(parents=True, exist_ok=True)
        with events.phase("reading the table", trial.name):
            rows = {
                split: read_rows(trial.run, schema, split, fold=trial.spec.fold, share=share)
                for split in _SPLITS
            }
            weights = {split: found.weight_N for split, found in rows.items()}
            weights["train"] = training_weights(rows["train"], trial.parameters.distribution, ranks)
            splits = {
                split: Split(
                    features=feature_frame(found, schema, self.as_numbers(schema)),
                    label_N=found.label_N,
                    weight_N=weights[split],
                )
                for split, found in rows.items()
            }
        progress = Progress(trial, ranks)
        fitted, fit_s = progress.timed(lambda: self.fit(trial, splits, progress))
        with events.phase("predicting", trial.name):
            start = time.perf_counter()
            own = {
                split: (rows[split].row_id_N, fitted.predict(splits[split].features)) for split in _SPLITS[1:]
            }
            predictions = _gathered(own, trial, ranks)
            predict_s = time.perf_counter() - start
        (train_rows,) = ranks.summed(np.array([len(rows["train"].row_id_N)], np.float64)).astype(int).tolist()
        if ranks.rank == 0:
            fitted.write(trial, predictions)
        record = fitted.record(trial, fit_s=fit_s, predict_s=predict_s, train_rows=train_rows)
        return record.model_copy(update={"out_of_time": progress.out_of_time})


@dataclass(frozen=True, kw_only=True)
class BoostingModel:
    """A loaded booster; `apply` takes features from `feature_frame`.

    `as_numbers` are the categories that it takes by their codes as numbers.
    `importance` gives the library's own importance of features, by name: the gain of the cuts if it keeps it.
    `contributions` gives what each feature adds to the margin, and last the base (N, C or 1, F + 1).
    """

    schema: TableSchema
    apply: Callable[[pd.DataFrame], NDArray[np.float64]]
    as_numbers: Collection[str] = ()
    contributions: Callable[[Rows], NDArray[Any]] | None = None
    importance: Callable[[], Mapping[str, Any]] | None = None

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        return self.apply(feature_frame(rows, self.schema, self.as_numbers))


def feature_frame(rows: Rows, schema: TableSchema, as_numbers: Collection[str] = ()) -> pd.DataFrame:
    """Features in the form for boosters: float32 with NaN, and categories by their codes in the schema.

    The codes of those `as_numbers` are numbers, too.
    """
    columns: dict[str, Any] = {
        feature.name: rows.numeric_NF[:, index] for index, feature in enumerate(schema.numeric)
    }
    for index, feature in enumerate(schema.categorical):
        if feature.name in as_numbers:
            code_N = rows.codes_NK[:, index].astype(np.float32)
            columns[feature.name] = np.where(code_N < 0, np.float32(np.nan), code_N)
            continue
        kind = pd.CategoricalDtype(list(range(len(feature.levels))))
        columns[feature.name] = pd.Categorical.from_codes(rows.codes_NK[:, index], dtype=kind)
    return pd.DataFrame({feature.name: columns[feature.name] for feature in schema.features}, copy=False)


def _gathered(predictions: Predictions, trial: TreesTrial, ranks: Ranks) -> Predictions:
    """Those of all ranks, through files that the first one reads."""
    if ranks.count == 1:
        return predictions
    files = [trial.scratch / f"predictions-{rank}.parquet" for rank in range(ranks.count)]
    write_predictions(files[ranks.rank], predictions, trial.schema)
    ranks.summed(np.zeros(1))  # all are written
    if ranks.rank:
        return predictions
    parts = [read_predictions(file, trial.schema) for file in files]
    found = {split: [part[split] for part in parts if split in part] for split in predictions}
    return {
        split: (np.concatenate([ids for ids, _ in own]), np.concatenate([values for _, values in own]))
        for split, own in found.items()
    }


def training_weights(rows: Rows, distribution: str, ranks: Ranks) -> NDArray[np.float32] | None:
    """Those of training rows: sums of second derivatives become what they are for a mean label of 1."""
    power = POWERS[distribution]
    if power in (0.0, 2.0):  # squared errors count in the target's own unit, gamma in none
        return rows.weight_N
    own_N = np.ones(len(rows.label_N), np.float32) if rows.weight_N is None else rows.weight_N
    total, weight = ranks.summed(np.array([np.dot(own_N, rows.label_N), own_N.sum()], np.float64))
    return own_N * np.float32(float(total / weight) ** (power - 2))


def fit_until(trial: TreesTrial) -> float | None:
    """When its trees have to stop growing, by `time.monotonic`; None without a time limit."""
    if trial.until is None:
        return None
    now = time.monotonic()
    return now + fit_s_of_trees(trial.until - now, trial.schema)


def thinned(train: Sequence[float], valid: Sequence[float], every: int) -> list[tuple[int, float, float]]:
    """The curve's points at a fixed interval of trees, and the last one."""
    steps = range(1, len(valid) + 1)
    pairs = zip(steps, train, valid, strict=True)
    return [point for point in pairs if point[0] % every == 0 or point[0] == len(valid)]


def both_classes(found: NDArray[Any], schema: TableSchema) -> NDArray[np.float64]:
    """Predictions in our form; for two classes, libraries give only the probability of the second."""
    values = np.asarray(found, dtype=np.float64)
    return np.column_stack([1.0 - values, values]) if schema.task == "binary" else values
