"""Runs one trial of the torch engine: table to device, training, predictions, and the files of the trial.

On a GPU lane everything runs on the GPU or the trial fails; nothing here falls back to the CPU.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparkgpu.artifacts import FitRecord, RunPaths, write_text
from sparkgpu.config import NeuralConfig
from sparkgpu.engines.neural.data import make_resident, raw_tensors
from sparkgpu.engines.neural.model import TabularModel, build_net, save_model
from sparkgpu.engines.neural.nets import Shape
from sparkgpu.engines.neural.objective import Objective
from sparkgpu.engines.neural.preprocess import QuantileNormal
from sparkgpu.engines.neural.strategy import Single, choose_single
from sparkgpu.engines.neural.train import CurvePoint, Training, train
from sparkgpu.errors import TrialError
from sparkgpu.events import EventWriter
from sparkgpu.plan import LanePlan, TrialSpec
from sparkgpu.schema import SplitName, TableSchema
from sparkgpu.table import Rows, read_rows, write_predictions

_REPORT_EVERY_S = 0.4
_FITTED_ON: tuple[SplitName, ...] = ("train", "valid")
_PREDICTED: tuple[SplitName, ...] = ("valid", "test")


def run_trial(
    spec: TrialSpec,
    config: NeuralConfig,
    schema: TableSchema,
    paths: RunPaths,
    lane: LanePlan,
    events: EventWriter,
    trees_ended: Callable[[], bool] = lambda: False,
) -> FitRecord:
    """Train, predict valid and test, and leave predictions, learning curve and model in the trial's folder.

    `config` is resolved: no parameter is open. Once `trees_ended` says so, training takes all cores of the
    lane; that changes no bit as long as ``MKL_CBWR=AUTO,STRICT`` is in the environment, without which MKL
    sums some products in another order. Sets torch's threads and seed for the whole process. Raises
    `DeviceError` when the lane's GPU cannot be used, `TrialError` when training diverges.
    """
    strategy = choose_single(config, lane)
    torch.set_num_threads(lane.neural_threads)
    torch.manual_seed(spec.seed)
    if strategy.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(strategy.device)
    trial = paths.trial(spec.name)
    trial.root.mkdir(parents=True, exist_ok=True)
    with events.phase("reading the table", spec.name):
        rows = {split: read_rows(paths, schema, split, fold=spec.fold) for split in _FITTED_ON}
        num_train_rows = len(rows["train"].row_id_N)
    with events.phase("training", spec.name):
        start = time.perf_counter()
        model, training = _fit(
            spec, config, schema, strategy, rows, _Reporter(events, spec.name, lane, trees_ended)
        )
        fit_s = time.perf_counter() - start
    save_model(model, trial.root, config, schema)
    write_text(trial.learning_curve, _as_csv(model.objective.metric, training.curve))
    predictions: dict[SplitName, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    predict_s = 0.0
    with events.phase("predicting", spec.name):
        for split in _PREDICTED:
            asked = read_rows(paths, schema, split, fold=spec.fold)
            start = time.perf_counter()
            values = model.predict(asked)
            predict_s += time.perf_counter() - start
            predictions[split] = (asked.row_id_N, values)
        write_predictions(trial.predictions, predictions, schema)
    on_gpu = strategy.device.type == "cuda"
    return FitRecord(
        trial=spec.name,
        engine=spec.engine,
        fit_s=fit_s,
        predict_s=predict_s,
        train_rows=num_train_rows,
        train_rows_per_s=num_train_rows * len(training.curve) / fit_s,
        peak_host_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        peak_device_bytes=torch.cuda.max_memory_allocated(strategy.device) if on_gpu else None,
        best_iteration=training.best_epoch,
        native_parameters=_native_parameters(model, training),
        device_proof=_device_proof(model, strategy, lane),
        parameters=config.model_dump(mode="json"),
        notes=training.notes,
    )


def _fit(
    spec: TrialSpec,
    config: NeuralConfig,
    schema: TableSchema,
    strategy: Single,
    rows: dict[SplitName, Rows],
    reporter: _Reporter,
) -> tuple[TabularModel, Training]:
    """Fit the transform and the network.

    Takes the rows out of `rows`: their raw numbers are overwritten or freed as soon as they are prepared.
    """
    train_rows = rows.pop("train")
    objective = Objective.fit(schema.task, train_rows.label_N, train_rows.weight_N)
    raw_NF, codes_NK = raw_tensors(train_rows, strategy.device)
    transform = QuantileNormal.fit(raw_NF, generator=torch.Generator().manual_seed(spec.seed))
    resident = make_resident(train_rows, raw_NF, codes_NK, transform, objective)
    valid_rows = rows.pop("valid")
    raw_NF, codes_NK = raw_tensors(valid_rows, strategy.device)
    resident_valid = make_resident(valid_rows, raw_NF, codes_NK, transform, objective)
    del train_rows, valid_rows, raw_NF, codes_NK
    shape = Shape(
        num_numeric=transform.num_outputs,
        num_levels=tuple(len(feature.levels) for feature in schema.categorical),
        num_outputs=schema.num_outputs,
    )
    model = TabularModel(transform, build_net(config, shape), objective)
    try:
        training = train(
            model.net,
            resident,
            resident_valid,
            objective=objective,
            config=config,
            strategy=strategy,
            seed=spec.seed,
            report=reporter.about(objective.metric),
        )
    except TrialError as error:
        raise TrialError(f"{spec.name}: {error}") from None
    return model, training


class _Reporter:
    """Called after every step; at most every 0.4 s it hands progress to the parent and looks for cores."""

    def __init__(
        self, events: EventWriter, trial: str, lane: LanePlan, trees_ended: Callable[[], bool]
    ) -> None:
        self._events = events
        self._trial = trial
        self._lane = lane
        self._trees_ended = trees_ended
        self._metric = ""
        self._next = 0.0

    def about(self, metric: str) -> _Reporter:
        """Itself, reporting values of `metric`."""
        self._metric = metric
        return self

    def __call__(self, done: float, epoch: int, value: float | None) -> None:
        now = time.perf_counter()
        if now < self._next and done < 1.0:
            return
        self._next = now + _REPORT_EVERY_S
        metric = self._metric if value is not None else None
        self._events.progress(self._trial, done, step=epoch, metric=metric, value=value)
        if torch.get_num_threads() < self._lane.threads and self._trees_ended():
            torch.set_num_threads(self._lane.threads)


def _as_csv(metric: str, curve: Sequence[CurvePoint]) -> str:
    lines = [
        f"{point.epoch},{point.elapsed_s:.3f},{metric},{point.train:.8g},{point.valid:.8g}\n"
        for point in curve
    ]
    return "".join(["step,elapsed_s,metric,train,valid\n", *lines])


def _native_parameters(model: TabularModel, training: Training) -> dict[str, str]:
    """What torch was really given, in words."""
    return {
        "network": " ".join(str(model.net).split()),
        "num_parameters": str(sum(parameter.numel() for parameter in model.net.parameters())),
        "num_inputs": str(model.transform.num_outputs),
        "num_knots": str(model.transform.knots_FQ.shape[1]),
        "optimizer": training.optimizer,
        "epochs_run": str(len(training.curve)),
        "kept_epoch": str(training.kept_epoch),
    }


def _device_proof(model: TabularModel, strategy: Single, lane: LanePlan) -> dict[str, Any]:
    device = strategy.device
    on_gpu = device.type == "cuda"
    return {
        "device": lane.device,
        "device_name": torch.cuda.get_device_name(device) if on_gpu else lane.device_name,
        "parameters_device": sorted({str(parameter.device) for parameter in model.parameters()}),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES") if on_gpu else None,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "precision": "bfloat16 autocast, float32 weights" if strategy.bfloat16 else "float32",
    }
