"""What every in-context model shares: the rows that it reads, its files, and its predictions.

To train is to keep rows and weights. A trial then loads what it kept, and predicts with that. Its files are
``model.json`` (columns, views, seed), ``model.npz`` (the rows) and the weights; none runs code when it is
loaded. Limits: row weights do not count; a prediction reads the whole context again.

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
from sparkgpu.core.rundir.records import FitRecord, SavedModelRecord
from sparkgpu.core.table.predictions import write_predictions
from sparkgpu.core.table.rows import Rows, joined, read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.engine import usable_device
from sparkgpu.trials.engine import ContextTrial, Model, Platform

_FORMAT = 1
_ROWS_AT_ONCE = 20_000  # to predict: each time the context is read again


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
        device = _device(trial)
        folder.mkdir(parents=True, exist_ok=True)
        with events.phase("reading the table", trial.name):
            train = read_rows(trial.run, schema, "train", fold=trial.spec.fold)
        with events.phase("training", trial.name):
            start = time.perf_counter()
            random = np.random.default_rng(trial.spec.seed)
            chosen_N = _rows(train, parameters.rows, random, is_regression=schema.task == "regression")
            names = np.array([feature.name for feature in (*schema.numeric, *schema.categorical)])
            order_X = random.permutation(len(names))[: parameters.columns]
            columns_X = np.sort(order_X)
            context = Context(
                x_NX=_matrix(train.part(chosen_N))[:, columns_X],
                label_N=train.label_N[chosen_N],
                is_regression=schema.task == "regression",
                estimators=parameters.estimators,
                seed=trial.spec.seed,
            )
            weights = self.weights(context, parameters.checkpoint)
            _save(folder, context, names[columns_X].tolist(), weights.file)
            model = self._loaded(folder, schema, str(device))
            fit_s = time.perf_counter() - start
        with events.phase("predicting", trial.name):
            start = time.perf_counter()
            parts = [read_rows(trial.run, schema, split, fold=trial.spec.fold) for split in ("valid", "test")]
            values = model.predict(joined(parts))
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
            train_rows=len(chosen_N),
            train_rows_per_s=len(chosen_N) / fit_s,
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
            notes=(*_limits(chosen_N, columns_X, train, names), *model.reader.notes),
        )

    @classmethod
    def load(cls, folder: Path, schema: TableSchema) -> Model:
        """On the CPU, as every engine's."""
        return cls._loaded(folder, schema, "cpu")

    @classmethod
    def _loaded(cls, folder: Path, schema: TableSchema, device: str) -> ContextModel:
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
            reader=cls.read(context, folder / saved["weights"], device),
            columns_X=np.array([names.index(name) for name in saved["columns"]]),
            classes_P=None if context.is_regression else np.unique(context.label_N),
            num_classes=len(schema.classes),
        )


@dataclass(frozen=True, kw_only=True)
class ContextModel:
    """A model with its context; `classes_P` are the classes that the context has, of `num_classes`."""

    reader: Reader
    columns_X: NDArray[np.int64]
    classes_P: NDArray[np.int64] | None
    num_classes: int

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        x_NX = _matrix(rows)[:, self.columns_X]
        starts = range(0, max(len(x_NX), 1), _ROWS_AT_ONCE)
        found = np.concatenate([self.reader.predict(x_NX[begin : begin + _ROWS_AT_ONCE]) for begin in starts])
        if self.classes_P is None:
            return found
        values_NC = np.zeros((len(found), self.num_classes))
        values_NC[:, self.classes_P] = found
        return values_NC


def _device(trial: ContextTrial) -> torch.device:
    """The lane's device, if the engine can use it; of a GPU, tensors may take what the trees leave."""
    can_use_gpu = ENGINES.find(trial.spec.engine).on_gpu
    device = usable_device(trial.lane) if can_use_gpu else torch.device("cpu")
    torch.set_num_threads(trial.lane.neural_threads)
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        share = network_budget(total, trial.beside_bytes, trial.lane.used_bytes) / total
        torch.cuda.set_per_process_memory_fraction(min(share, 1.0), device)
        torch.cuda.reset_peak_memory_stats(device)
    return device


def _matrix(rows: Rows) -> NDArray[np.float32]:
    return np.concatenate([rows.numeric_NF, rows.codes_NK.astype(np.float32)], axis=1)


def _rows(train: Rows, most: int, random: np.random.Generator, *, is_regression: bool) -> NDArray[np.int64]:
    """At most so many rows, drawn at random, but of each class at least one."""
    order_N = random.permutation(len(train.row_id_N))
    if not is_regression:
        _, first_C = np.unique(train.label_N[order_N], return_index=True)
        order_N = np.concatenate([order_N[first_C], np.delete(order_N, first_C)])
    return np.sort(order_N[:most])


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


def _limits(
    chosen_N: NDArray[np.int64], columns_X: NDArray[np.int64], train: Rows, names: NDArray[Any]
) -> list[str]:
    notes = []
    if len(chosen_N) < len(train.row_id_N):
        notes.append(
            f"it reads {len(chosen_N):,} of the {len(train.row_id_N):,} training rows, drawn at random"
        )
    if len(columns_X) < len(names):
        notes.append(f"it reads {len(columns_X):,} of the {len(names):,} columns, drawn at random")
    if train.weight_N is not None:
        notes.append("it knows no row weights: they count in the metrics alone")
    return notes
