"""Small tables with a known relation, and one trial on one of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1]))  # in a process that pytest did not start

from made_table import feature, made_rows, write_splits

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import Event, EventReader, EventWriter
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.engine import Torch
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.precision import Precision
from sparkgpu.trials.engine import NeuralTrial, Platform, Trial

CLASSES = {"binary": ("no", "yes"), "multiclass": ("ant", "bee", "cat"), "regression": ()}
QUICK: dict[str, Any] = {
    "architecture": "mlp",
    "hidden": (32,), "dropout": 0.0, "epochs": 12, "batch_size": 64, "learning_rate": 1e-2,
    "weight_decay": 1e-4, "patience": 0, "schedule": "constant",
}  # fmt: skip


def parameters(**settings: Any) -> NeuralParameters:
    """A small network's, with whole batches at once where nothing else is said."""
    asked = {**QUICK, **settings}
    return NeuralParameters(**{"micro_batch_size": asked["batch_size"], **asked})


def alone(dtype: torch.dtype | None = None) -> Strategy:
    """`single` on the CPU, which trains in `dtype`."""
    return Strategy(
        RankPlace(device=torch.device("cpu"), precision=Precision(device_type="cpu", dtype=dtype))
    )


def plant(
    root: Path,
    task: str,
    *,
    rows: int = 1500,
    folds: int | None = None,
    weight_N: np.ndarray | None = None,
    words_N: np.ndarray | None = None,
    levels: tuple[str, ...] = ("red", "green", "blue"),
    label_N: np.ndarray | None = None,
    missing: bool = True,
) -> tuple[RunPaths, TableSchema]:
    """A run directory whose label depends on a skewed column, a column with missing values and a word."""
    random = np.random.default_rng(3)
    skewed_N = random.lognormal(0.0, 2.0, rows)
    gappy_N = random.normal(size=rows)
    if words_N is None:
        words_N = random.choice(levels, rows)
    code_N = np.array([levels.index(word) if word in levels else 0 for word in words_N])
    signal_N = np.log(skewed_N) / 2 + gappy_N + (code_N % 3)
    gap_N = random.random(rows) < 0.1 if missing else np.zeros(rows, dtype=bool)
    if label_N is None:
        cuts = {"binary": [1.0], "multiclass": [0.4, 1.6], "regression": None}[task]
        label_N = 5000 + 1000 * signal_N if cuts is None else np.digitize(signal_N, cuts)
    split_N = np.where(np.arange(rows) % 5 == 4, "test", np.where(np.arange(rows) % 5 == 3, "valid", "train"))
    if folds:
        split_N = np.where(split_N == "valid", "train", split_N)
    features = (feature("skewed"), feature("gappy"), feature("constant"), feature("word", *levels))
    columns = {
        "skewed": skewed_N,
        "gappy": np.where(gap_N, np.nan, gappy_N),
        "constant": np.full(rows, 2.5),
        "word": words_N,
    }
    fold_N = np.arange(rows) % folds if folds else None
    paths = RunPaths(root=root)
    write_splits(paths, made_rows(features, columns, label_N, weight_N=weight_N, fold_N=fold_N), split_N)
    splits = {split: int((split_N == split).sum()) for split in ("train", "valid", "test")}
    schema = TableSchema(
        source="planted", target="y", task=task, classes=CLASSES[task], features=features,
        weighted=weight_N is not None, folds=folds, rows=rows, splits=splits, fingerprint="",
    )  # fmt: skip
    write_json(paths.schema, schema)
    return paths, schema


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The files and the record of one trial."""

    record: FitRecord
    folder: Path
    predictions: dict[str, tuple[np.ndarray, np.ndarray]]
    curve: list[list[str]]
    events: list[Event]
    label_N: np.ndarray

    @property
    def test(self) -> np.ndarray:
        return self.predictions["test"][1]

    def accuracy(self) -> float:
        return float((self.test.argmax(axis=1) == self.label_N).mean())

    def r2(self) -> float:
        return float(1 - np.mean((self.test - self.label_N) ** 2) / self.label_N.var())

    def column(self, name: str) -> list[float]:
        place = self.curve[0].index(name)
        return [float(line[place]) for line in self.curve[1:]]


def lane_on(device: str, threads: int = 1) -> LanePlan:
    """A lane of one thread: a second gains nothing here, and costs much time where the cores are busy."""
    title = "NVIDIA H200" if device.startswith("cuda") else "AMD EPYC"
    return LanePlan(
        index=0, device=device, cuda_visible_devices=None, device_name=title, threads=threads,
        tree_threads=threads, neural_threads=threads, heap_bytes=2**30, port_base=50000,
    )  # fmt: skip


def made_trial(
    paths: RunPaths,
    schema: TableSchema,
    spec: TrialSpec,
    device: str,
    *,
    may_wait: bool = True,
    **settings: Any,
) -> NeuralTrial:
    """A trial as a lane's worker hands it to the engine."""
    lane = paths.lane(0)
    return Trial(
        spec=spec,
        parameters=parameters(**settings),
        schema=schema,
        run=paths,
        lane=lane_on(device),
        events=EventWriter(lane.events("neural"), lane.phases("neural")),
        scratch=paths.root,
        may_wait=may_wait,
    )


def fit(
    paths: RunPaths,
    schema: TableSchema,
    device: str = "cpu",
    *,
    name: str = "neural-s7",
    seed: int = 7,
    fold: int | None = None,
    spec: TrialSpec | None = None,
    **settings: Any,
) -> Outcome:
    """Run one trial and read back everything it wrote."""
    spec = spec or TrialSpec(
        name=name, model="neural", engine="torch", seed=seed, fold=fold, lane=0, gang=(0,)
    )
    record = Torch(Platform()).run(made_trial(paths, schema, spec, device, **settings))
    trial = paths.trial(spec.name)
    return Outcome(
        record=record,
        folder=trial.root,
        predictions=read_predictions(trial.predictions, schema),
        curve=[line.split(",") for line in trial.learning_curve.read_text().splitlines()],
        events=EventReader(paths.lane(0).events("neural")).new(),
        label_N=read_rows(paths, schema, "test", features=False).label_N,
    )
