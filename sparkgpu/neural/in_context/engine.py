"""What every in-context model shares: the rows that it reads, its files, and its predictions.

To train is to keep rows and weights. A trial then loads what it kept, and predicts with that. Its files are
``model.json`` (columns, views, seed), ``model.npz`` (the rows) and the weights; none runs code when it is
loaded. Limits: row weights do not count; a prediction reads the whole context again. On a GPU rows are bound
by its memory, and where the time is short there are fewer views, and then fewer rows.

N rows, X columns: first the numeric ones, NaN for missing, then the codes of categories, -1 for missing.
C classes.
"""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.processes import peak_resident_bytes
from sparkgpu.core.plan.gpu_memory import network_budget
from sparkgpu.core.rundir.curve import curve_as_csv
from sparkgpu.core.rundir.files import read_json, write_json, write_text
from sparkgpu.core.rundir.records import FitRecord, MemoryRecord, SavedModelRecord
from sparkgpu.core.table.predictions import write_predictions
from sparkgpu.core.table.rows import Rows, joined, read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.engine import usable_device
from sparkgpu.neural.training.memory import in_chunks
from sparkgpu.trials.engine import ContextTrial, Model, Platform

_FORMAT = 1
_ROWS_AT_ONCE = 20_000  # to predict: each time the context is read again
_LEAST_ROWS = 500  # at once, of the context, and to see how long it takes
_SPARE = 1.3
_WAY_OUT = "lower the rows or columns that it reads, or train it on the CPU."


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a model reads: `x_NX` in float32, class codes or values, the number of views, and a seed."""

    x_NX: NDArray[np.float32]
    label_N: NDArray[Any]
    is_regression: bool
    estimators: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A model with its context. `predict` takes (N, X), and gives values (N,) or probabilities.

    These are of the classes that the context has, in the order of their codes. `notes` are for the trial's
    record.
    """

    predict: Callable[[NDArray[np.float32]], NDArray[np.float64]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The file of a model's weights, and who they are in words, with their size and licence."""

    file: Path
    described: str


class InContextEngine(ABC):
    """An engine (`sparkgpu.trials.engine.Engine`) around one in-context model."""

    row_bytes = 2**15
    """At most what a row, of the context or to predict, takes on a GPU while all are read together."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    @abstractmethod
    def weights(self, context: Context, checkpoint: str | None) -> Weights:
        """Those of `checkpoint`, or the published ones. Raises `TrialError` if they cannot be had."""

    @staticmethod
    @abstractmethod
    def read(context: Context, weights: Path, device: str) -> Reader:
        """Put the context before the model. Raises `TrialError` if the weights are for another task."""

    def run(self, trial: ContextTrial) -> FitRecord:
        """As the protocol says; the model that predicts is the one that was saved."""
        parameters, schema, events, folder = trial.parameters, trial.schema, trial.events, trial.paths.root
        device, budget = _device(trial)
        folder.mkdir(parents=True, exist_ok=True)
        with events.phase("reading the table", trial.name):
            train = read_rows(trial.run, schema, "train", fold=trial.spec.fold)
            parts = [read_rows(trial.run, schema, split, fold=trial.spec.fold) for split in ("valid", "test")]
            rows = joined(parts)
        names = np.array([feature.name for feature in (*schema.numeric, *schema.categorical)])
        most, at_once = min(parameters.rows, len(train.row_id_N)), _ROWS_AT_ONCE
        plan: MemoryRecord | None = None
        notes: list[str] = []
        if budget is not None:
            most = max(min(most, budget // self.row_bytes - _LEAST_ROWS), 1)
            at_once = min(max(budget // self.row_bytes - most, 1), _ROWS_AT_ONCE)
            plan = MemoryRecord(
                budget_bytes=budget, beside_bytes=trial.beside_bytes, table_bytes=most * self.row_bytes,
                lasting_bytes=0, step_bytes=0, evaluation_bytes=at_once * self.row_bytes, micro_rows=0,
                eval_rows=at_once,
            )  # fmt: skip
        random = np.random.default_rng(trial.spec.seed)
        order_N = _order(train, random, is_regression=schema.task == "regression")
        columns_X = np.sort(random.permutation(len(names))[: parameters.columns])

        def prepared(most: int, estimators: int) -> tuple[Weights, ContextModel]:
            chosen_N = np.sort(order_N[:most])
            context = Context(
                x_NX=_matrix(train.part(chosen_N))[:, columns_X],
                label_N=train.label_N[chosen_N],
                is_regression=schema.task == "regression",
                estimators=estimators,
                seed=trial.spec.seed,
            )
            weights = self.weights(context, parameters.checkpoint)
            _save(folder, context, names[columns_X].tolist(), weights.file)
            return weights, self._loaded(folder, schema, device, at_once)

        with events.phase("training", trial.name):
            start = time.perf_counter()
            weights, model = prepared(most, parameters.estimators)
            share = 1.0 if trial.until is None else _share_in_time(model, rows, most, trial.until)
            if share < 1:
                asked = parameters.estimators
                estimators = max(1, int(asked * share))
                most = max(int(most * min(1.0, share * asked / estimators)), min(most, _LEAST_ROWS))
                notes.append(f"the time limit left {estimators} of its {asked} views")
                weights, model = prepared(most, estimators)
            fit_s = time.perf_counter() - start
        with events.phase("predicting", trial.name):
            start = time.perf_counter()
            values = model.predict(rows)
            ends = np.cumsum([len(part.row_id_N) for part in parts])
            found = dict(zip(("valid", "test"), np.split(values, ends[:1]), strict=True))
            predict_s = time.perf_counter() - start
        predictions = {split: (rows.row_id_N, found[split]) for split, rows in zip(found, parts, strict=True)}
        write_predictions(trial.paths.predictions, predictions, schema)  # type: ignore[arg-type]
        metric = "log_loss" if schema.classes else "rmse"
        write_text(trial.paths.learning_curve, curve_as_csv(metric, ()))
        on_gpu = device.type == "cuda"
        return FitRecord(
            trial=trial.name,
            engine=trial.spec.engine,
            fit_s=fit_s,
            predict_s=predict_s,
            train_rows=most,
            train_rows_per_s=most / fit_s,
            peak_host_bytes=peak_resident_bytes(),
            peak_device_bytes=torch.cuda.max_memory_allocated(device) if on_gpu else None,
            best_iteration=1,
            native_parameters={"weights": weights.described},
            device_proof={
                "device": str(device),
                "device_name": trial.lane.device_name,
                "torch": torch.__version__,
            },
            on_gpu=on_gpu,
            parameters=parameters.model_dump(mode="json"),
            saved_model=SavedModelRecord(rows=len(parts[1].row_id_N), largest_difference=0.0),
            memory_plan=plan,
            out_of_time=share < 1,
            notes=(*notes, *_limits(most, columns_X, train, names), *model.reader.notes),
        )

    @classmethod
    def load(cls, folder: Path, schema: TableSchema) -> Model:
        """On the CPU, as every engine's."""
        return cls._loaded(folder, schema, torch.device("cpu"), _ROWS_AT_ONCE)

    @classmethod
    def _loaded(cls, folder: Path, schema: TableSchema, device: torch.device, at_once: int) -> ContextModel:
        saved = read_json(folder / "model.json")
        if saved["format"] != _FORMAT:
            raise TrialError(
                f"{folder}: another version of sparkgpu saved this model (format {saved['format']}; this one "
                f"reads {_FORMAT}). Run it again, or use that version."
            )
        with np.load(folder / "model.npz", allow_pickle=False) as arrays:
            context = Context(
                x_NX=arrays["x_NX"], label_N=arrays["label_N"], is_regression=schema.task == "regression",
                estimators=saved["estimators"], seed=saved["seed"],
            )  # fmt: skip
        names = [feature.name for feature in (*schema.numeric, *schema.categorical)]
        return ContextModel(
            reader=cls.read(context, folder / saved["weights"], str(device)),
            device=device,
            rows_at_once=at_once,
            columns_X=np.array([names.index(name) for name in saved["columns"]]),
            classes_P=None if context.is_regression else np.unique(context.label_N),
            num_classes=len(schema.classes),
        )


@dataclass(frozen=True, kw_only=True)
class ContextModel:
    """A model with its context; `classes_P` are the classes that the context has, of `num_classes`."""

    reader: Reader
    device: torch.device
    rows_at_once: int
    columns_X: NDArray[np.int64]
    classes_P: NDArray[np.int64] | None
    num_classes: int

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        x_NX = _matrix(rows)[:, self.columns_X]
        parts = in_chunks(
            lambda part: self.reader.predict(x_NX[part]), len(x_NX), self.rows_at_once, self.device, _WAY_OUT
        )
        found = np.concatenate(list(parts))
        if self.classes_P is None:
            return found
        values_NC = np.zeros((len(found), self.num_classes))
        values_NC[:, self.classes_P] = found
        return values_NC


def _device(trial: ContextTrial) -> tuple[torch.device, int | None]:
    """The lane's device, if the engine can use it, and the bytes of a GPU that the trees leave to tensors."""
    can_use_gpu = ENGINES.find(trial.spec.engine).on_gpu
    device = usable_device(trial.lane) if can_use_gpu else torch.device("cpu")
    torch.set_num_threads(trial.lane.neural_threads)
    if device.type != "cuda":
        return device, None
    _, total = torch.cuda.mem_get_info(device)
    budget = network_budget(total, trial.beside_bytes, trial.lane.used_bytes)
    torch.cuda.set_per_process_memory_fraction(min(budget / total, 1.0), device)
    torch.cuda.reset_peak_memory_stats(device)
    return device, budget


def _share_in_time(model: ContextModel, rows: Rows, context_rows: int, until: float) -> float:
    """The part of the work of predicting all rows for which there is time, as a few rows show."""
    some, whole = min(len(rows.row_id_N), _LEAST_ROWS), len(rows.row_id_N)
    begin = time.monotonic()
    model.predict(rows.part(slice(some)))
    now = time.monotonic()
    chunks = -(-whole // model.rows_at_once)
    needed_s = (now - begin) * (chunks * context_rows + whole) / (context_rows + some)
    return (until - now) / (_SPARE * needed_s) if until > now else 0.0


def _matrix(rows: Rows) -> NDArray[np.float32]:
    return np.concatenate([rows.numeric_NF, rows.codes_NK.astype(np.float32)], axis=1)


def _order(train: Rows, random: np.random.Generator, *, is_regression: bool) -> NDArray[np.int64]:
    """The rows in the order in which they are taken: at random, but one of each class first."""
    order_N = random.permutation(len(train.row_id_N))
    if is_regression:
        return order_N
    _, first_C = np.unique(train.label_N[order_N], return_index=True)
    return np.concatenate([order_N[first_C], np.delete(order_N, first_C)])


def _save(folder: Path, context: Context, columns: Sequence[str], weights: Path) -> None:
    """``model.json`` comes last: its presence means that the model is complete."""
    kept = folder / f"model{weights.suffix}"
    shutil.copyfile(weights, kept)
    np.savez(folder / "model.npz", x_NX=context.x_NX, label_N=context.label_N)
    write_json(
        folder / "model.json",
        {
            "format": _FORMAT, "columns": columns, "estimators": context.estimators, "seed": context.seed,
            "weights": kept.name,
        },
    )  # fmt: skip


def _limits(most: int, columns_X: NDArray[np.int64], train: Rows, names: NDArray[Any]) -> list[str]:
    notes = []
    if most < len(train.row_id_N):
        notes.append(f"it reads {most:,} of the {len(train.row_id_N):,} training rows, drawn at random")
    if len(columns_X) < len(names):
        notes.append(f"it reads {len(columns_X):,} of the {len(names):,} columns, drawn at random")
    if train.weight_N is not None:
        notes.append("it knows no row weights: they count in the metrics alone")
    return notes
