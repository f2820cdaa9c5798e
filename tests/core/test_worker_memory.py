"""Trees that run out of a GPU's memory beside the network grow again when the network has ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.lanes.worker import Work

MESSAGE = "[17:02:11] ../src/common/device_helpers.cuh:431: Memory allocation error: std::bad_alloc"


@dataclass
class Engine:
    """Runs out of memory the first time."""

    message: str
    runs: int = 0

    def run(self, trial: Any) -> FitRecord:
        self.runs += 1
        if self.runs == 1:
            raise RuntimeError(self.message)
        return FitRecord(
            trial="trees-s7", engine="h2o-xgboost", fit_s=1.0, predict_s=0.1, train_rows=10,
            train_rows_per_s=10.0, peak_host_bytes=1, best_iteration=1, notes=("first",),
        )  # fmt: skip


def worker(tmp_path: Path) -> tuple[Work, RunPaths]:
    made = Work.__new__(Work)
    made.paths = RunPaths(root=tmp_path)
    made.branch = "trees"
    made.lane = SimpleNamespace(index=0)  # type: ignore[assignment]
    own = made.paths.lane(0)
    made.events = EventWriter(own.events("trees"), own.phases("trees"))
    return made, made.paths


def trial(*, on_gpu: bool, may_wait: bool = True) -> Any:
    return SimpleNamespace(parameters=SimpleNamespace(on_gpu=on_gpu), may_wait=may_wait)


def test_they_grow_again_after_the_network(tmp_path: Path) -> None:
    made, paths = worker(tmp_path)
    write_text(paths.lane(0).ended("neural"), "")
    record = made._run_with_room(Engine(MESSAGE), trial(on_gpu=True))
    assert record.notes == ("grown after the network: the GPU's memory did not hold both at once", "first")


@pytest.mark.parametrize(
    ("message", "on_gpu", "may_wait", "waits"),
    [
        ("the data is wrong", True, True, False),
        (MESSAGE, False, True, False),
        (MESSAGE, True, False, False),  # on a cluster, where nobody marks the end of the network
        (MESSAGE, True, True, True),
    ],
)
def test_other_failures_and_a_network_that_waits_for_them_end_the_trial(
    tmp_path: Path, message: str, on_gpu: bool, may_wait: bool, waits: bool
) -> None:
    made, paths = worker(tmp_path)
    if waits:
        write_text(paths.lane(0).network_waits, "")
    engine = Engine(message)
    with pytest.raises(RuntimeError):
        made._run_with_room(engine, trial(on_gpu=on_gpu, may_wait=may_wait))
    assert engine.runs == 1
