"""Trains and applies H2O XGBoost inside a lane's H2O context (Sparkling Water, XGBoost 1.6).

The table's Parquet files are parsed by H2O itself; categories arrive as enums, gaps as gaps. On one node rows
are in the order of their ids, because subsampling picks by position. H2O quietly trains on the CPU when
its GPU cannot be used: here a GPU lane counts as trained only if the native library says ``gpu_hist``.
"""

from __future__ import annotations

import csv
import io
import shutil
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h2o
import numpy as np
import pyarrow.parquet as pq
from h2o.estimators import H2OXGBoostEstimator
from numpy.typing import NDArray

from sparkgpu.config.keys import TreesConfig
from sparkgpu.engines.trees.h2o_cloud import Cloud
from sparkgpu.engines.trees.h2o_frames import H2OTables
from sparkgpu.engines.trees.h2o_jobs import H2OJob, refusals_of
from sparkgpu.errors import DeviceError
from sparkgpu.host.processes import peak_resident_bytes
from sparkgpu.plan.plan import LanePlan, TrialSpec
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.files import write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.predictions import write_predictions
from sparkgpu.table.schema import LABEL, ROW_ID, WEIGHT, SplitName, TableSchema

if TYPE_CHECKING:
    from h2o import H2OFrame

_POLL_S = 0.15
_MOST_POLL_S = 1.0
_DISTRIBUTIONS = {"binary": "bernoulli", "multiclass": "multinomial", "regression": "gaussian"}
_EVAL_METRICS = {"binary": "logloss", "multiclass": "mlogloss", "regression": "rmse"}
_MAX_GPU_DEPTH = 15  # beyond it H2O takes the CPU without a word


def run_trial(
    spec: TrialSpec,
    config: TreesConfig,
    schema: TableSchema,
    tables: H2OTables,
    paths: RunPaths,
    lane: LanePlan,
    events: EventWriter,
    *,
    predicting: AbstractContextManager[None],
    cloud: Cloud | None = None,
) -> FitRecord:
    """Train, predict valid and test, and leave predictions, learning curve and MOJO in the trial's folder.

    `config` is resolved: no parameter is open. Predictions are made within `predicting`. With `cloud` a
    training that stands still is found. Raises `DeviceError` when a GPU was asked for and not used,
    `TrialError` when H2O refuses or fails.
    """
    folder = paths.trial(spec.name).root
    folder.mkdir(parents=True, exist_ok=True)
    parameters = estimator_parameters(config, schema, spec.seed, lane)
    with events.phase("handing the table to H2O", spec.name):
        train, valid = tables.split("train", spec.fold), tables.split("valid", spec.fold)
        if one_node := tables.why_one_node(train, valid):
            parameters["build_tree_one_node"] = True
    start = time.perf_counter()
    with events.phase("training", spec.name):
        model = _start(spec, parameters, schema, train, valid)
        test = tables.split("test", spec.fold)  # parsed while the first trees grow
        job = H2OJob(model._job.job_key, spec.name, cloud, tables.num_nodes)
        is_scoring = _grow(job, spec, config, events)
    if is_scoring:
        # All rows trained and validated on: with many classes this takes as long as the trees.
        with events.phase("H2O's own scoring", spec.name):
            while job.done() is not None:
                time.sleep(_POLL_S)
    with refusals_of(spec.name):
        model.join()
    fit_s = time.perf_counter() - start
    output = model._model_json["output"]
    native = _native_parameters(output)
    _check_device(spec, config, native)
    with events.phase("predicting", spec.name), predicting:
        start = time.perf_counter()
        asked: dict[SplitName, H2OFrame] = {"valid": valid, "test": test}
        predictions = {
            split: _predict(model, frame, schema, tables.scratch / f"predicted-{split}")
            for split, frame in asked.items()
        }
        predict_s = time.perf_counter() - start
        write_predictions(paths.trial(spec.name).predictions, predictions, schema)
    with events.phase("saving the model", spec.name):
        model.download_mojo(path=str(folder / "model.zip"))
    best, curve = _learning_curve(output, schema)
    write_text(paths.trial(spec.name).learning_curve, curve)
    h2o.remove(model.model_id)
    actual = model.actual_params
    rows = train.nrows
    return FitRecord(
        trial=spec.name,
        engine=spec.engine,
        fit_s=fit_s,
        predict_s=predict_s,
        train_rows=rows,
        train_rows_per_s=rows * _num_trees(output) / fit_s,
        peak_host_bytes=peak_resident_bytes(),
        best_iteration=best,
        native_parameters=native,
        device_proof={
            "tree_method": native.get("tree_method"),
            "backend": actual.get("backend"),
            "gpu_id": actual.get("gpu_id"),
            "cuda_visible_devices": lane.cuda_visible_devices,
        },
        parameters=parameters,
        notes=(one_node,) if one_node else (),
    )


def estimator_parameters(
    config: TreesConfig, schema: TableSchema, seed: int, lane: LanePlan
) -> dict[str, Any]:
    """What `H2OXGBoostEstimator` is called with. Raises `DeviceError` where H2O would leave the GPU."""
    on_gpu = config.tree_method == "gpu_hist"
    if on_gpu and (config.max_depth or 0) > _MAX_GPU_DEPTH:
        raise DeviceError(
            f"trees.max_depth = {config.max_depth}: on a GPU H2O XGBoost goes to {_MAX_GPU_DEPTH} at most "
            'and would turn to the CPU. Lower it, or set trees.tree_method = "hist".'
        )
    parameters: dict[str, Any] = {
        "ntrees": config.ntrees,
        "max_depth": config.max_depth,
        "learn_rate": config.learn_rate,
        "min_rows": config.min_rows,
        "sample_rate": config.sample_rate,
        "col_sample_rate": config.col_sample_rate,
        "col_sample_rate_per_tree": config.col_sample_rate_per_tree,
        "reg_lambda": config.reg_lambda,
        "reg_alpha": config.reg_alpha,
        "max_bins": config.max_bins,
        "distribution": _DISTRIBUTIONS[schema.task],
        # "hist" on a GPU backend is what H2O passes on as gpu_hist; its client knows no such word.
        "tree_method": "hist" if on_gpu else config.tree_method,
        "backend": "gpu" if on_gpu else "cpu",
        "nthread": lane.tree_threads,
        "seed": seed,
        "score_tree_interval": config.score_tree_interval,
        # The native metric alone: H2O's own scoring in Java costs twice the training.
        "score_eval_metric_only": True,
        "eval_metric": _EVAL_METRICS[schema.task],
    }
    if on_gpu:
        parameters["gpu_id"] = [0]
    if config.early_stopping_rounds:
        parameters["stopping_rounds"] = -(-config.early_stopping_rounds // config.score_tree_interval)
        parameters["stopping_metric"] = "custom"
        parameters["stopping_tolerance"] = 0.0
    if schema.weighted:
        parameters["weights_column"] = WEIGHT
    return parameters


def _start(
    spec: TrialSpec, parameters: Mapping[str, Any], schema: TableSchema, train: H2OFrame, valid: H2OFrame
) -> H2OXGBoostEstimator:
    model = H2OXGBoostEstimator(model_id=spec.name, **parameters)
    with refusals_of(spec.name):
        model.start(
            x=[feature.name for feature in schema.features],
            y=LABEL,
            training_frame=train,
            validation_frame=valid,
        )
    return model


def _grow(job: H2OJob, spec: TrialSpec, config: TreesConfig, events: EventWriter) -> bool:
    """Report the trees grown so far until all stand; whether H2O still works on the model then.

    Of a model that stops early this cannot be told: its progress stays where it was.
    """
    told, grown = -1.0, time.monotonic()
    while (done := job.done()) is not None:
        if done != told:
            events.progress(spec.name, done, step=round(done * (config.ntrees or 0)))
            told, grown = done, time.monotonic()
        if done >= 1.0:
            return True
        # Slow trees are asked for less often: each question is work for the node that trains.
        time.sleep(max(_POLL_S, min(_MOST_POLL_S, (time.monotonic() - grown) / 10)))
    return False


def _native_parameters(output: Mapping[str, Any]) -> dict[str, str]:
    """What the native library reports that it used (name to value)."""
    found = output.get("native_parameters")
    return {str(row[-2]): str(row[-1]) for row in found.cell_values} if found is not None else {}


def _num_trees(output: Mapping[str, Any]) -> int:
    """How many trees were grown: fewer than the native library was asked for where training stopped early."""
    history = output["scoring_history"]
    return int(history.cell_values[-1][history.col_header.index("number_of_trees")])


def _check_device(spec: TrialSpec, config: TreesConfig, native: Mapping[str, str]) -> None:
    if config.tree_method == "gpu_hist" and native.get("tree_method") != "gpu_hist":
        raise DeviceError(
            f"{spec.name}: gpu_hist was asked for, but XGBoost trained with {native.get('tree_method')!r}. "
            "Look at the lane's log for the GPU library; to train on the CPU set trees.tree_method to hist."
        )


def _predict(
    model: H2OXGBoostEstimator, frame: H2OFrame, schema: TableSchema, folder: Path
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Row ids, and values (N,) or probabilities (N, C) in the order of the schema's classes.

    Handed over as Parquet in the empty `folder`, which is removed: H2O's CSV download takes longer.
    """
    predicted = frame[ROW_ID].cbind(model.predict(frame))
    h2o.export_file(predicted, str(folder), format="parquet", parts=1)
    found = pq.read_table(folder)
    shutil.rmtree(folder)
    names = [f"p{code}" for code in range(len(schema.classes))] or ["predict"]
    values = np.column_stack([found[name].to_numpy() for name in names])
    return found[ROW_ID].to_numpy().astype(np.int64), values if schema.classes else values[:, 0]


def _learning_curve(output: Mapping[str, Any], schema: TableSchema) -> tuple[int, str]:
    """The best number of trees on the validation rows, and the curve as CSV."""
    history = output["scoring_history"]
    names = history.col_header
    metric = {"logloss": "log_loss", "mlogloss": "log_loss"}.get(_EVAL_METRICS[schema.task], "rmse")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "elapsed_s", "metric", "train", "valid"])
    best, least = 0, float("inf")
    begin: float | None = None
    for row in history.cell_values:
        cells = dict(zip(names, row, strict=True))
        trees, valid = int(cells["number_of_trees"]), cells.get("validation_custom")
        elapsed = _seconds(str(cells["duration"]))
        begin = elapsed if begin is None else begin
        if trees == 0 or not isinstance(valid, float):
            continue
        writer.writerow([trees, round(elapsed - begin, 3), metric, cells.get("training_custom"), valid])
        if valid < least:
            best, least = trees, valid
    return best, text.getvalue()


def _seconds(duration: str) -> float:
    """H2O's words for a duration ("1 min 2.345 sec") in seconds."""
    units = {"hour": 3600.0, "hours": 3600.0, "min": 60.0, "mins": 60.0, "sec": 1.0, "secs": 1.0}
    words = duration.split()
    return sum(
        float(number) * units.get(unit, 0.0) for number, unit in zip(words[::2], words[1::2], strict=False)
    )
