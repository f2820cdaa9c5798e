"""One trial on one of its ranks: table to device, training, predictions, and the trial's files.

With one device there is one rank, the lane's worker itself. With several, only the leading rank writes files;
the others send it their facts at the end. On a GPU lane everything runs on the GPU or the trial fails;
nothing here falls back to the CPU.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from sparkgpu.config.keys import NeuralConfig
from sparkgpu.engines.neural.model import TRANSFORMS, TabularModel, needed_bins, save_model
from sparkgpu.engines.neural.nets.build import build_net
from sparkgpu.engines.neural.nets.shape import Shape
from sparkgpu.engines.neural.rows.loader import LoadedSource
from sparkgpu.engines.neural.rows.placement import place_rows, pool_rows
from sparkgpu.engines.neural.rows.resident import ResidentSource, Source, mean_weight, raw_rows
from sparkgpu.engines.neural.rows.stream import StreamedSource, fit_transform
from sparkgpu.engines.neural.strategies.base import Strategy
from sparkgpu.engines.neural.training.checkpoint import Checkpoints, CurvePoint
from sparkgpu.engines.neural.training.objective import Objective
from sparkgpu.engines.neural.training.optimizer import RECIPES
from sparkgpu.engines.neural.training.train import Report, Training, train
from sparkgpu.errors import TrialError
from sparkgpu.plan.plan import LanePlan, TrialSpec
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.files import write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.predictions import write_predictions
from sparkgpu.table.row_groups import RowGroups
from sparkgpu.table.rows import read_rows
from sparkgpu.table.schema import SplitName, TableSchema

_PREDICTED: tuple[SplitName, ...] = ("valid", "test")


def run_rank(
    spec: TrialSpec,
    config: NeuralConfig,
    schema: TableSchema,
    paths: RunPaths,
    lane: LanePlan,
    events: EventWriter,
    strategy: Strategy,
    report: Callable[[str], Report],
    on_trained: Callable[[], None] = lambda: None,
) -> FitRecord | None:
    """Train with the other ranks, if any; the leading rank writes the trial's files and returns a record.

    `config` is resolved: every parameter has a value. `report` makes the training loop's reporter for a
    metric. `on_trained` is called when the other ranks are no longer needed. Sets torch's seed for the whole
    process. Raises `TrialError` if training diverges.
    """
    torch.manual_seed(spec.seed)
    if strategy.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(strategy.device)
    trial = paths.trial(spec.name)
    trial.root.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpoints(
        trial.checkpoints, minutes=config.checkpoint_minutes, request=paths.checkpoint_request
    )
    with events.phase("reading the table", spec.name):
        fitted = _Fitted(spec, config, schema, paths, strategy)
    with events.phase("training", spec.name):
        start = time.perf_counter()
        model, training = _train(spec, config, fitted, strategy, report, checkpoints)
        fit_s = time.perf_counter() - start
    num_train_rows, notes = fitted.num_train_rows, fitted.notes
    del fitted  # frees the table's memory for the rows to predict
    resources = _resources(strategy)
    on_trained()
    if model is None:
        return None
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
    checkpoints.remove()
    on_gpu = strategy.device.type == "cuda"
    return FitRecord(
        trial=spec.name,
        engine=spec.engine,
        fit_s=fit_s,
        predict_s=predict_s,
        train_rows=num_train_rows,
        train_rows_per_s=num_train_rows * len(training.curve) / fit_s,
        peak_host_bytes=sum(found["host_bytes"] for found in resources),
        peak_device_bytes=max(found["device_bytes"] for found in resources) if on_gpu else None,
        best_iteration=training.best_epoch,
        native_parameters=_native_parameters(model, training),
        device_proof=_device_proof(strategy, lane, resources),
        parameters=config.model_dump(mode="json"),
        notes=(*notes, *training.notes),
    )


class _Fitted:
    """The training rows, their source, and everything fitted on them."""

    def __init__(
        self, spec: TrialSpec, config: NeuralConfig, schema: TableSchema, paths: RunPaths, strategy: Strategy
    ) -> None:
        device = strategy.device
        kind, recipe = TRANSFORMS[config.architecture], RECIPES[config.architecture]
        self.residence, reason = place_rows(config, schema, schema.splits["train"], device)
        self.notes = (reason,) if reason else ()
        sampled = torch.Generator().manual_seed(spec.seed)
        if self.residence == "stream":
            own = read_rows(paths, schema, "train", fold=spec.fold, features=False)
            self.num_train_rows = len(own.row_id_N)
            groups = RowGroups(paths, schema, "train", fold=spec.fold)
            self.objective = recipe.objective(
                Objective.fit(schema.task, own.label_N, own.weight_N), own.label_N
            )
            self.transform = fit_transform(kind, groups, self.num_train_rows, generator=sampled).to(device)
            self.source: Source = StreamedSource(
                groups,
                self.num_train_rows,
                transform=self.transform,
                objective=self.objective,
                mean_weight=mean_weight(own.weight_N),
                pool_rows=pool_rows(config, schema),
                device=device,
            )
        else:
            rows = read_rows(paths, schema, "train", fold=spec.fold)
            self.num_train_rows = len(rows.row_id_N)
            self.objective = recipe.objective(
                Objective.fit(schema.task, rows.label_N, rows.weight_N), rows.label_N
            )
            raw = raw_rows(rows, self.objective, mean_weight=mean_weight(rows.weight_N))
            kept = torch.device("cpu") if self.residence == "dataloader" else device
            raw = raw.to(kept)
            del rows
            self.transform = kind.fit(raw.numeric_NG, generator=sampled)
            if self.residence == "dataloader":
                self.source = LoadedSource(raw.prepared(self.transform), config.dataloader, device)
                self.transform.to(device)
            else:
                self.source = ResidentSource(rows=raw.prepared(self.transform))
            del raw
        self.shape = Shape(
            num_numeric=self.transform.num_outputs,
            num_levels=tuple(len(feature.levels) for feature in schema.categorical),
            num_outputs=schema.num_outputs,
            bins=needed_bins(config, self.transform),
        )
        rows = read_rows(paths, schema, "valid", fold=spec.fold)
        raw = raw_rows(rows, self.objective, mean_weight=mean_weight(rows.weight_N)).to(device)
        self.valid = raw.prepared(self.transform)


def _train(
    spec: TrialSpec,
    config: NeuralConfig,
    fitted: _Fitted,
    strategy: Strategy,
    report: Callable[[str], Report],
    checkpoints: Checkpoints,
) -> tuple[TabularModel | None, Training]:
    """Train. Returns the finished model on the leading rank, None on the others."""
    net = build_net(config, fitted.shape)
    strategy.spread(net, fitted.objective)
    if config.compile:
        strategy.module.compile()
    try:
        training = train(
            strategy,
            fitted.source,
            fitted.valid,
            config=config,
            recipe=RECIPES[config.architecture],
            seed=spec.seed,
            report=report(fitted.objective.metric),
            checkpoints=checkpoints,
        )
    except TrialError as error:
        raise TrialError(f"{spec.name}: {error}") from None
    weights = strategy.gather()
    if not strategy.leads:
        return None, training
    if strategy.num_ranks > 1:
        net = build_net(config, fitted.shape)
        net.load_state_dict(weights)
        net.to(strategy.device)
    return TabularModel(fitted.transform, net, fitted.objective), training


def _resources(strategy: Strategy) -> list[dict[str, Any]]:
    """Collect on the leading rank what each rank used and where its part of the network is."""
    on_gpu = strategy.device.type == "cuda"
    own = {
        "rank": dist.get_rank() if strategy.num_ranks > 1 else 0,
        "host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "device_bytes": torch.cuda.max_memory_allocated(strategy.device) if on_gpu else 0,
        "device_name": torch.cuda.get_device_name(strategy.device) if on_gpu else None,
        "parameters_device": sorted({str(parameter.device) for parameter in strategy.parameters()}),
    }
    if strategy.num_ranks == 1:
        return [own]
    found: list[Any] | None = [None] * strategy.num_ranks if strategy.leads else None
    dist.gather_object(own, found, dst=0)
    return found or []


def _as_csv(metric: str, curve: Sequence[CurvePoint]) -> str:
    lines = [
        f"{point.epoch},{point.elapsed_s:.3f},{metric},{point.train:.8g},{point.valid:.8g}\n"
        for point in curve
    ]
    return "".join(["step,elapsed_s,metric,train,valid\n", *lines])


def _native_parameters(model: TabularModel, training: Training) -> dict[str, str]:
    """The settings that torch really got, in words."""
    return {
        "network": " ".join(str(model.net).split()),
        "num_parameters": str(sum(parameter.numel() for parameter in model.net.parameters())),
        "num_inputs": str(model.transform.num_outputs),
        "num_knots": str(model.transform.knots_FQ.shape[1]),
        "optimizer": training.optimizer,
        "epochs_run": str(len(training.curve)),
        "kept_epoch": str(training.kept_epoch),
    }


def _device_proof(strategy: Strategy, lane: LanePlan, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    on_gpu = strategy.device.type == "cuda"
    return {
        "device": lane.device,
        "device_name": ranks[0]["device_name"] or lane.device_name,
        "parameters_device": sorted({name for rank in ranks for name in rank["parameters_device"]}),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES") if on_gpu else None,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "precision": str(strategy.precision),
        "strategy": strategy.name,
        "num_ranks": strategy.num_ranks,
        **({"ranks": ranks} if len(ranks) > 1 else {}),
    }
