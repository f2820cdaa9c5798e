"""One trial on one of its ranks: table to device, training, predictions, and the trial's files.

Of several ranks only the leading one writes files; the others send it their facts at the end. On a GPU lane
everything runs on the GPU or the trial fails; nothing here falls back to the CPU.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.errors import TrialError
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.rundir import curve
from sparkgpu.core.rundir.events import Event
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import write_predictions
from sparkgpu.core.table.rows import RowGroups, pages, read_rows
from sparkgpu.core.table.schema import SplitName, read_schema
from sparkgpu.neural.model import TabularModel, save_model
from sparkgpu.neural.nets.network import InputShape, TabularNet, build_net, find_network
from sparkgpu.neural.rows.fitted import FittedRows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.checkpoint import Checkpoints, TrainingState
from sparkgpu.neural.training.fixed_step import CudaGraph, reason_against
from sparkgpu.neural.training.joint import models_of
from sparkgpu.neural.training.memory import TOO_LARGE, is_out_of_memory, release
from sparkgpu.neural.training.optimizer import learns_by_muon
from sparkgpu.neural.training.time_limit import TimeLimit
from sparkgpu.neural.training.train import Report, Training
from sparkgpu.trials.engine import NeuralTrial, PrunedError

if TYPE_CHECKING:
    from sparkgpu.neural.gpu_share import Card

_REPORT_EVERY_S = 0.4
_PAGE_VALUES = 2**26  # of rows to predict in memory: 256 MiB
_PREDICTED: tuple[SplitName, ...] = ("valid", "test")


def run_rank(
    trial: NeuralTrial, strategy: Strategy, *, on_step: Callable[[], None] = lambda: None
) -> FitRecord | None:
    """Train with the other ranks, if any; the leading rank writes the trial's files and returns a record.

    `on_step` is called after each step. Sets torch's seed for the whole process. Raises `TrialError` when
    training diverges.
    """
    parameters, events, paths = trial.parameters, trial.events, trial.paths
    torch.manual_seed(trial.spec.seed)
    card = _card(strategy.device, trial.beside_bytes, trial.lane.used_bytes)
    if strategy.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(strategy.device)
    paths.root.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpoints(
        paths.checkpoints, minutes=parameters.checkpoint_minutes, request=trial.run.checkpoint_request
    )
    with events.phase("reading the table", trial.name):
        fitted = FittedRows(trial, strategy, card)
    with events.phase("training", trial.name):
        start = time.perf_counter()
        model, training = _train(trial, fitted, strategy, on_step, checkpoints, card)
        fit_s = time.perf_counter() - start
    num_train_rows, notes, shape = fitted.num_train_rows, fitted.notes, fitted.shape
    del fitted  # frees the table's memory for the rows to predict
    resources = _resources(strategy)
    if model is None:
        return None
    assert training.best is not None
    with strategy.slow_work():
        lines = [  # without the digits that float32 does not have
            curve.CurvePoint(
                step=point.epoch,
                elapsed_s=round(point.elapsed_s, 3),
                train=float(f"{point.train:.8g}"),
                valid=float(f"{point.valid:.8g}"),
            )
            for point in training.curve
        ]
        curve_csv = curve.curve_as_csv(model.objective.metric, lines)
        predict_s = 0.0
        for own, one in _of_targets(trial, model, shape):
            own.paths.root.mkdir(parents=True, exist_ok=True)
            if one.objective.distribution == "lognormal":
                _smear(own, one)
            save_model(one, own.paths.root, parameters, own.schema)
            write_text(own.paths.learning_curve, curve_csv)
            predict_s += _predict(own, one)
    checkpoints.remove()
    on_gpu = strategy.device.type == "cuda"
    return FitRecord(
        trial=trial.name,
        engine=trial.spec.engine,
        fit_s=fit_s,
        predict_s=predict_s,
        train_rows=num_train_rows,
        train_rows_per_s=num_train_rows * len(training.curve) / fit_s,
        peak_host_bytes=sum(found["host_bytes"] for found in resources),
        peak_device_bytes=max(found["device_bytes"] for found in resources) if on_gpu else None,
        best_iteration=training.best.epoch,
        most_steps=parameters.epochs,
        out_of_time=training.out_of_time,
        native_parameters=_native_parameters(model, training, parameters),
        device_proof=_device_proof(strategy, trial.lane, resources, training.plain_steps),
        on_gpu=all(name.startswith("cuda") for found in resources for name in found["parameters_device"]),
        parameters=parameters.model_dump(mode="json"),
        memory_plan=card.plan if card is not None else None,
        notes=(*notes, *(card.notes if card is not None else ()), *training.notes),
    )


def _of_targets(
    trial: NeuralTrial, model: TabularModel, shape: InputShape
) -> list[tuple[NeuralTrial, TabularModel]]:
    """The trial and its model; of several targets, those of each one."""
    folders = trial.schema.targets
    if not folders:
        return [(trial, model)]
    each = [trial.run.target(folder) for folder in folders]
    own = [replace(trial, run=paths, schema=read_schema(paths)) for paths in each]
    return list(zip(own, models_of(model, trial.parameters, shape), strict=True))


def _smear(trial: NeuralTrial, model: TabularModel) -> None:
    """Make the mean prediction of the validation rows their mean label."""
    rows = read_rows(trial.run, trial.schema, "valid", fold=trial.spec.fold)
    label, predicted = (
        float(np.average(value_N, weights=rows.weight_N)) for value_N in (rows.label_N, model.predict(rows))
    )
    model.objective = replace(model.objective, smear=label / predicted)


def _predict(trial: NeuralTrial, model: TabularModel) -> float:
    """Write predictions for validation and test rows. Returns the seconds that they took, without reading."""
    predictions: dict[SplitName, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    predict_s = 0.0
    with trial.events.phase("predicting", trial.name):
        for split in _PREDICTED:
            groups = RowGroups(trial.run, trial.schema, split, fold=trial.spec.fold)
            ids, values = [], []
            for rows in pages(groups.blocks(), max(_PAGE_VALUES // max(len(trial.schema.features), 1), 1)):
                start = time.perf_counter()
                ids.append(rows.row_id_N)
                values.append(model.predict(rows))
                predict_s += time.perf_counter() - start
            predictions[split] = (np.concatenate(ids), np.concatenate(values))
        write_predictions(trial.paths.predictions, predictions, trial.schema)
    return predict_s


def _reporter(trial: NeuralTrial, strategy: Strategy, metric: str, on_step: Callable[[], None]) -> Report:
    """Called after every step; at most every 0.4 s it reports progress and takes cores that became free."""
    next_at, watched = 0.0, 0

    def report(done: float, epoch: int, value: float | None) -> None:
        nonlocal next_at, watched
        on_step()
        if trial.watch is not None and value is not None and epoch > watched:
            watched = epoch
            trial.watch(epoch, value)
        now = time.perf_counter()
        if not strategy.leads or (now < next_at and done < 1.0):
            return
        next_at = now + _REPORT_EVERY_S
        named = metric if value is not None else None
        trial.events.progress(trial.name, done, step=epoch, metric=named, value=value)
        may_take_cores = not strategy.precision.keeps_threads
        if may_take_cores and torch.get_num_threads() < trial.lane.threads and trial.cores_are_free():
            torch.set_num_threads(trial.lane.threads)

    return report


def _card(device: torch.device, beside_bytes: int, used_bytes: int) -> Card | None:
    if device.type != "cuda":
        return None
    from sparkgpu.neural.gpu_share import Card  # loads torch's fake tensors, which takes a second

    return Card(device, beside_bytes, used_bytes)


def _train(
    trial: NeuralTrial,
    fitted: FittedRows,
    strategy: Strategy,
    on_step: Callable[[], None],
    checkpoints: Checkpoints,
    card: Card | None,
) -> tuple[TabularModel | None, TrainingState]:
    """Train. Returns the finished model on the leading rank, None on the others."""
    config = trial.parameters
    net = build_net(config, fitted.shape)
    _start_at_rows(net, trial, fitted)
    if card is not None:
        config = card.plan_for(trial, fitted, strategy, net)
    plain = reason_against(strategy, config, card.plan if card is not None else None)
    try:
        strategy.spread(net, fitted.objective)
        if config.compile:
            strategy.module.compile()
        run = Training(
            strategy=strategy,
            source=fitted.source,
            valid_rows=fitted.valid,
            config=config,
            recipe=find_network(config).recipe,
            seed=trial.spec.seed,
            report=_reporter(trial, strategy, fitted.objective.metric, on_step),
            checkpoints=checkpoints,
            limit=TimeLimit(
                trial.until,
                valid_rows=len(fitted.valid),
                predicted_rows=len(fitted.valid) + trial.schema.splits["test"],
            ),
            graph=CudaGraph(strategy.device) if plain is None else None,
        )
        if run.done:
            trial.events.emit(
                Event(at=time.time(), kind="phase", text="training", trial=trial.name, done=run.done)
            )
        training = run.run()
    except PrunedError:
        raise
    except TrialError as error:
        raise TrialError(f"{trial.name}: {error}") from None
    except RuntimeError as error:  # for the network, in the optimizer, or for the copy of the best weights
        if not is_out_of_memory(error):
            raise
        raise TrialError(f"{trial.name}: {TOO_LARGE}") from None
    training.plain_steps = plain or training.plain_steps
    with strategy.slow_work():
        weights = strategy.gather()
    if not strategy.leads:
        return None, training
    if strategy.num_ranks > 1:
        net = build_net(config, fitted.shape)
        net.load_state_dict(weights)
        try:
            net.to(strategy.device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            release(strategy.device)
            net.to("cpu")
            fitted.transform.to("cpu")
            training.notes.append("predicted on the CPU: one device does not hold the whole network")
    return TabularModel(fitted.transform, net, fitted.objective, chunk_rows=strategy.eval_rows), training


def _start_at_rows(net: TabularNet, trial: NeuralTrial, fitted: FittedRows) -> None:
    """Let a network whose initial weights depend on training rows see some: the same ones on each rank."""
    network = find_network(trial.parameters)
    if network.start is None:
        return
    most = network.start_rows
    drawn = fitted.source.batches(seed=trial.spec.seed, epoch=0, batch_size=most, first=0, part=slice)
    rows, _ = next(drawn)
    net.eval()
    with torch.no_grad():
        network.start(net, rows.to(torch.device("cpu")))
    net.train()
    if network.looks_up and len(rows) < fitted.num_train_rows:
        fitted.notes += (f"it looks up {len(rows):,} of the {fitted.num_train_rows:,} training rows",)


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


def _native_parameters(
    model: TabularModel, training: TrainingState, config: NeuralParameters
) -> dict[str, str]:
    """The settings that torch really got, in words."""
    recipe = find_network(config).recipe
    has_muon = any(learns_by_muon(name, config, recipe) for name, _ in model.net.named_parameters())
    kept = training.best if config.patience else training.curve[-1]
    assert kept is not None
    return {
        "network": " ".join(str(model.net).split()),
        "num_parameters": str(sum(parameter.numel() for parameter in model.net.parameters())),
        "num_inputs": str(model.transform.num_outputs),
        "num_knots": str(model.transform.knots_FQ.shape[1]),
        "optimizer": "AdamW (fused)" + (", Muon" if has_muon else ""),
        "epochs_run": str(len(training.curve)),
        "kept_epoch": str(kept.epoch),
    }


def _device_proof(
    strategy: Strategy, lane: LanePlan, ranks: list[dict[str, Any]], plain_steps: str | None
) -> dict[str, Any]:
    steps = "one CUDA graph each" if plain_steps is None else f"operation by operation: {plain_steps}"
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
        **({"steps": steps} if on_gpu else {}),
        **({"ranks": ranks} if len(ranks) > 1 else {}),
    }
