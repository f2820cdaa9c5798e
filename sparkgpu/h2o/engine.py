"""Trains and applies H2O XGBoost inside a lane's H2O or a cloud of executors (Sparkling Water, XGBoost 1.6).

A lane's H2O reads the table in place (`frames`), a cloud of nodes parses it (`cloud_frames`). On one node the
rows are in the order of their ids, because subsampling picks by position. H2O silently trains on the CPU if
it cannot use the GPU. Here a GPU trial succeeds only if H2O asked its library for ``gpu_hist``; that NVML saw
the JVM on the GPU meanwhile is the second proof (`sparkgpu.runs.caveats.nvml_proof`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h2o
import numpy as np
from h2o.estimators import H2OXGBoostEstimator
from numpy.typing import NDArray

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.interpreter import importing
from sparkgpu.core.host.processes import peak_resident_bytes
from sparkgpu.core.rundir.curve import curve_as_csv
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.records import FitRecord, SavedModelRecord
from sparkgpu.core.table.predictions import write_predictions
from sparkgpu.core.table.rows import RowGroups
from sparkgpu.core.table.schema import LABEL, SplitName, TableSchema
from sparkgpu.h2o.client_internals import job_of, output_of
from sparkgpu.h2o.cloud_frames import H2OTables
from sparkgpu.h2o.frames import LocalTables
from sparkgpu.h2o.history import WatchedHistory, learning_curve, native_parameters, num_trees
from sparkgpu.h2o.jobs import H2OJob, refusals_of
from sparkgpu.h2o.mojo import MOJO, MojoModel, load_mojo
from sparkgpu.h2o.mojo_file import complete
from sparkgpu.h2o.parameters import estimator_parameters, level_order, unit_of
from sparkgpu.prepare.pyspark_internals import java_of
from sparkgpu.trees.boosting import fit_until
from sparkgpu.trials.engine import Model, Platform, PrunedError, TreesTrial
from sparkgpu.trials.saved_model import compared

if TYPE_CHECKING:
    from h2o import H2OFrame
    from py4j.java_gateway import JVMView

_POLL_S = 0.3
_LEAST_S = 0.5
_PREDICTED: tuple[SplitName, ...] = ("valid", "test")
_VERIFIED_ROWS = 1_000

_Values = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Row ids, with values (N,) or with probabilities (N, C) in the order of the schema's classes."""


class H2OXGBoost:
    """An engine (`sparkgpu.trials.engine.Engine`) inside the H2O to which this process is connected."""

    def __init__(self, platform: Platform) -> None:
        java = platform.java
        if java is None:  # on a cluster, whose driver is no node of the cloud, but has H2O's classes
            assert platform.session is not None
            java = java_of(platform.session)
        self._java: JVMView = java
        self._in_cloud = platform.on_cluster
        self._tables: H2OTables | LocalTables | None = None

    def run(self, trial: TreesTrial) -> FitRecord:
        schema, events, paths = trial.schema, trial.events, trial.paths
        paths.root.mkdir(parents=True, exist_ok=True)
        parameters = estimator_parameters(trial)
        fold = trial.spec.fold
        with events.phase("handing the table to H2O", trial.name):
            tables = self._tables = self._tables or self._tables_of(trial)
            if isinstance(tables, LocalTables):
                tables.use(trial.run, trial.schema)
            order, unit = level_order(trial), unit_of(trial)
            train, valid = (tables.coded(split, fold, order, unit) for split in ("train", "valid"))
            one_node = tables.why_one_node(train, valid) if isinstance(tables, H2OTables) else None
            if one_node:
                parameters["build_tree_one_node"] = True
        start = time.perf_counter()
        with events.phase("training", trial.name):
            until = fit_until(trial)
            if until is not None:
                parameters["max_runtime_secs"] = max(_LEAST_S, until - time.monotonic())
            model = _start(trial, parameters, train, valid)
            _import_for_the_end(schema)
            watched = WatchedHistory(model, trial, unit)
            _grow(H2OJob(job_of(model), trial.name, in_cloud=self._in_cloud), trial, until, watched)
            with refusals_of(trial.name):
                model.join()
        fit_s = time.perf_counter() - start
        output = output_of(model)
        native = native_parameters(output)
        _check_device(trial, native)
        points, grown = learning_curve(output, unit), num_trees(output)
        watched.tell(points)
        # The first of the best, by the losses on the validation rows.
        best = min(points, key=lambda point: point.valid or 0.0).step if points else 0
        patience = trial.parameters.early_stopping_rounds
        is_done = grown >= trial.parameters.ntrees or (patience and grown - best >= patience)
        stopped = patience and 0 < best < grown
        with events.phase("saving the model", trial.name):
            model.download_mojo(path=str(paths.root / MOJO))
            levels = {feature.name: feature.levels for feature in schema.categorical}
            complete(
                paths.root / MOJO,
                {name: [levels[name][code] for code in codes] for name, codes in order.items()},
                rounds=best if stopped else None,
                trees_per_round=len(schema.classes) if schema.task == "multiclass" else 1,
                unit=unit,
            )
        with events.phase("predicting", trial.name):
            start = time.perf_counter()
            predictions = _predicted(trial, self._java)
            predict_s = time.perf_counter() - start
            verified = _verified(predictions["valid"], trial, self._java)
            write_predictions(paths.predictions, predictions, schema)
        write_text(paths.learning_curve, curve_as_csv("log_loss" if schema.classes else "rmse", points))
        h2o.remove(model.model_id)
        actual = model.actual_params
        rows = train.nrows
        return FitRecord(
            trial=trial.name,
            engine=trial.spec.engine,
            fit_s=fit_s,
            predict_s=predict_s,
            train_rows=rows,
            train_rows_per_s=rows * grown / fit_s,
            peak_host_bytes=peak_resident_bytes(),
            best_iteration=best,
            most_steps=trial.parameters.ntrees,
            out_of_time=until is not None and not is_done,
            native_parameters=native,
            device_proof={
                "tree_method_asked": native.get("tree_method"),
                "backend": actual.get("backend"),
                "gpu_id": actual.get("gpu_id"),
                "cuda_visible_devices": trial.lane.cuda_visible_devices,
            },
            on_gpu=native.get("tree_method") == "gpu_hist",
            parameters=parameters,
            notes=(one_node,) if one_node else (),
            saved_model=verified,
        )

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> Model:
        return load_mojo(folder, schema)

    def _tables_of(self, trial: TreesTrial) -> H2OTables | LocalTables:
        if self._in_cloud:
            return H2OTables(trial.run, trial.schema)
        threads = trial.lane.threads
        return LocalTables(self._java, trial.run, trial.schema, trial.scratch, threads=threads)


def _start(
    trial: TreesTrial, parameters: Mapping[str, Any], train: H2OFrame, valid: H2OFrame
) -> H2OXGBoostEstimator:
    model = H2OXGBoostEstimator(model_id=trial.name, **parameters)
    with refusals_of(trial.name):
        model.start(
            x=[feature.name for feature in trial.schema.features],
            y=LABEL,
            training_frame=train,
            validation_frame=valid,
        )
    return model


def _import_for_the_end(schema: TableSchema) -> None:
    """Import what predicts and what scales probabilities while the trees grow: this process has time then."""
    with importing():
        if find_spec("xgboost"):
            import_module("sparkgpu.h2o.mojo_booster")
        if schema.classes:
            import_module("scipy.optimize")


def _grow(job: H2OJob, trial: TreesTrial, until: float | None, watched: WatchedHistory) -> None:
    """Report the number of trees until all are grown and H2O has stored them; it scores no row then."""
    told = -1.0
    while (done := job.done()) is not None:
        try:
            watched.look()
        except PrunedError:
            job.cancel()
            raise
        if done != told:
            # With a time limit, H2O tells the share of the time.
            step = round(done * trial.parameters.ntrees) if until is None else None
            metric = ("log_loss" if trial.schema.classes else "rmse") if watched.newest is not None else None
            trial.events.progress(trial.name, done, step=step, metric=metric, value=watched.newest)
            told = done
        time.sleep(_POLL_S)


def _predicted(trial: TreesTrial, java: JVMView) -> dict[SplitName, _Values]:
    """Those of the trial's MOJO, since users get it; the package xgboost is many times faster than H2O."""
    saved = load_mojo(trial.paths.root, trial.schema, java)
    found: dict[SplitName, _Values] = {}
    for split in _PREDICTED:
        ids, values = [], []
        for rows in RowGroups(trial.run, trial.schema, split, fold=trial.spec.fold).blocks():
            ids.append(rows.row_id_N)
            values.append(saved.predict(rows))
        found[split] = np.concatenate(ids), np.concatenate(values)
    return found


def _verified(predicted: _Values, trial: TreesTrial, java: JVMView) -> SavedModelRecord:
    """Compare with H2O's scoring library in `java`. Raises `TrialError` if predictions differ."""
    model = MojoModel(trial.paths.root / MOJO, trial.schema, java)
    rows = next(RowGroups(trial.run, trial.schema, "valid", fold=trial.spec.fold).blocks())
    rows = rows.part(np.flatnonzero(model.can_read(rows))[:_VERIFIED_ROWS])
    return compared(trial.name, (rows.row_id_N, model.predict(rows)), predicted, on_gpu=False)


def _check_device(trial: TreesTrial, native: Mapping[str, str]) -> None:
    if trial.parameters.on_gpu and native.get("tree_method") != "gpu_hist":
        raise DeviceError(
            f"{trial.name}: gpu_hist was asked for, but H2O asked its library for "
            f"{native.get('tree_method')!r}. Search the lane's log for the GPU library; to train on "
            "the CPU, set trees.tree_method to hist."
        )
