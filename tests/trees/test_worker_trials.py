"""A worker's trials: a failure leaves the others alone, and trees without memory wait for the network."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from planted_trees import Table, cpu_lane, table

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import TrialError
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.files import read_json, write_json, write_text
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.lanes.worker import Work
from sparkgpu.trials.engine import TreesTrial


def worker(planted: Table, *engines: str, device: str = "cpu", master: str | None = None) -> Work:
    """A worker of trees with one model for each engine, on a table that is there."""
    paths, lane = planted.paths, cpu_lane().model_copy(update={"device": device})
    added = [name for name in engines if name != "h2o-xgboost"]
    config = config_io.load(options={"also": added}, assignments=["trees.ntrees=5"])
    write_text(paths.config, config_io.dump(config))
    trials = tuple(
        TrialSpec(name=f"{name}-s7", model=name, engine=engine, seed=7, fold=None, lane=0, gang=(0,))
        for engine in engines
        for name in ("trees" if engine == "h2o-xgboost" else engine,)
    )
    write_json(paths.plan, Plan(preset="fast", lanes=(lane,), trials=trials, reasons={}, master=master))
    write_json(paths.lane(0).lane, lane)
    return Work(paths, 0, "trees", planted.paths.root, None)


@pytest.fixture
def planted(tmp_path: Path) -> Table:
    random = np.random.default_rng(1)
    return table(tmp_path, random.integers(0, 2, 600), {"x": random.normal(size=600)})


@pytest.fixture
def no_xgboost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.delitem(sys.modules, "sparkgpu.trees.xgboost_library", raising=False)


@pytest.fixture
def no_h2o(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is taken for started, and H2O refuses."""
    refused = TrialError("H2O did not start: no port is free.")
    monkeypatch.setattr(Work, "_spark", lambda self, *, h2o: nullcontext())
    monkeypatch.setattr("sparkgpu.h2o.context.start_h2o", Mock(side_effect=refused))


def test_without_h2o_and_without_another_engine_the_worker_fails(planted: Table, no_h2o: None) -> None:
    with pytest.raises(TrialError, match="H2O did not start"):
        worker(planted, "h2o-xgboost").run()


@pytest.mark.parametrize(
    ("engine", "reason"), [("xgboost", "pip install"), ("h2o-xgboost", "H2O did not start")]
)
def test_an_engine_that_cannot_train_fails_its_own_trial_alone(
    planted: Table, no_h2o: None, no_xgboost: None, engine: str, reason: str
) -> None:
    pytest.importorskip("lightgbm")
    made = worker(planted, engine, "lightgbm")
    assert made.run() == 5
    events = EventReader(planted.paths.lane(0).events("trees")).new()
    first, second = (trial.name for trial in made.plan.trials)
    ends = {event.trial: event.kind for event in events if event.kind in ("trial_done", "trial_failed")}
    assert ends == {first: "trial_failed", second: "trial_done"}
    assert reason in read_json(planted.paths.trial(first).error)["message"]


MEMORY = "[17:02:11] ../src/common/device_helpers.cuh:431: Memory allocation error: std::bad_alloc"


@pytest.mark.parametrize(
    ("message", "device", "master", "network", "grown"),
    [
        (MEMORY, "cuda:0", None, "ended", True),
        (MEMORY, "cuda:0", None, "waits", False),  # for these trees
        (MEMORY, "cuda:0", "spark://head:7077", "ended", False),  # where nobody marks the end
        (MEMORY, "cpu", None, "ended", False),
        ("the data is wrong", "cuda:0", None, "ended", False),
    ],
)
def test_trees_that_a_gpu_does_not_hold_beside_the_network_grow_again_after_it(
    planted: Table,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    device: str,
    master: str | None,
    network: str,
    grown: bool,
) -> None:
    library = pytest.importorskip("sparkgpu.trees.xgboost_library")
    failures = [RuntimeError(message)]

    class RunsOutOnce(library.XGBoost):  # type: ignore[misc,name-defined]
        def run(self, trial: TreesTrial) -> FitRecord:
            if failures:
                raise failures.pop()
            on_cpu = trial.parameters.model_copy(update={"tree_method": "hist"})
            record: FitRecord = super().run(replace(trial, parameters=on_cpu))
            return record

    monkeypatch.setattr(library, "XGBoost", RunsOutOnce)
    made, lane = worker(planted, "xgboost", device=device, master=master), planted.paths.lane(0)
    write_text(lane.ended("neural") if network == "ended" else lane.network_waits, "")
    assert made.run() == (0 if grown else 5)
    trial = planted.paths.trial("xgboost-s7")
    if grown:
        assert "grown after the network" in read_json(trial.fit)["notes"][0]
    else:
        assert message in read_json(trial.error)["message"]
