"""One trial on a frame in memory and the CPU, without a run's processes: for the estimators of scikit-learn.

It trains as a run's trials do: the same engines, defaults, and early stopping on a part of the rows. N rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.host.devices import find_machine
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.intervals import Conformal
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.schema import TableSchema, Task
from sparkgpu.prepare.encoding import Encoder
from sparkgpu.prepare.frame_table import early_stop_split, frame_features, write_frame_table
from sparkgpu.score.conformal import calibrated
from sparkgpu.trials.engine import Model, Platform, Trial, load_fitted, make_engine
from sparkgpu.trials.two_sizes import run_sizes

_FEW_ROWS = 10_000
"""With fewer rows one thread is as fast as several, and does not wait for cores that others use."""


@dataclass(frozen=True, kw_only=True)
class FrameModel:
    """A trained model as the bytes of its files, which can be copied and pickled; `sure` if asked."""

    engine: str
    schema: TableSchema
    files: Mapping[str, bytes]
    best_iteration: int
    sure: Conformal | None = None

    def loaded(self) -> Model:
        with tempfile.TemporaryDirectory(prefix="sparkgpu-load-") as name:
            folder = Path(name)
            for file, content in self.files.items():
                (folder / file).write_bytes(content)
            return load_fitted(self.engine, folder, self.schema)


def fit_frame(
    table: pa.Table,
    label_N: NDArray[Any],
    weight_N: NDArray[Any] | None,
    *,
    source: str,
    task: Task,
    classes: Sequence[str],
    branch: str,
    engine: str,
    config: RunConfig,
    valid_size: float,
    threads: int | None,
    seed: int,
) -> FrameModel:
    """Train an engine of `branch` (``trees`` or ``neural``) on the table's columns by their types alone.

    `label_N` holds class codes or values, `valid_size` is the share of rows for early stopping. Without
    `threads`, a small table takes one and a larger one all cores.
    """
    split_N = early_stop_split(label_N, bool(classes), valid_size, seed)
    schema = TableSchema(
        source=source,
        target="y",
        task=task,
        classes=tuple(classes),
        features=frame_features(table, split_N == "train"),
        weighted=weight_N is not None,
        rows=table.num_rows,
        splits={name: int((split_N == name).sum()) for name in ("train", "valid", "test")},
        fingerprint="",
    )
    threads = threads or (1 if schema.rows < _FEW_ROWS else find_machine().cores)
    lane = LanePlan(
        index=0, device="cpu", cuda_visible_devices=None, device_name="cpu", threads=threads,
        tree_threads=threads, neural_threads=threads,
    )  # fmt: skip
    resolved = resolve(
        config, preset=config.preset or "fast", strategy="single", size=TableSize.of(schema), device="cpu",
        tree_device=lambda engine: "cpu",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="sparkgpu-fit-") as folder:
        paths = RunPaths(root=Path(folder))
        write_frame_table(paths, schema, Encoder(schema).rows(table), label_N, weight_N, split_N)
        events = EventWriter(paths.root / "events.jsonl", paths.root / "phases.json")
        trial: Trial[Any] = Trial(
            spec=TrialSpec(name="fit", model=branch, engine=engine, seed=seed, fold=None, lane=0, gang=(0,)),
            parameters=resolved.trees if branch == "trees" else resolved.neural,
            schema=schema,
            run=paths,
            lane=lane,
            events=events,
            scratch=paths.root,
        )
        with closing(events):
            record = run_sizes(make_engine(engine, Platform()).run, trial)
        files = {file.name: file.read_bytes() for file in trial.paths.root.glob("model.*")}
        valid_M, values = read_predictions(trial.paths.predictions, schema)["valid"]
    sure = None
    if config.intervals is not None:
        own_M = None if weight_N is None else weight_N[valid_M]
        sure = calibrated(task, config.intervals, label_N[valid_M], values, weight_N=own_M)
    return FrameModel(
        engine=engine, schema=schema, files=files, best_iteration=int(record.best_iteration), sure=sure
    )
