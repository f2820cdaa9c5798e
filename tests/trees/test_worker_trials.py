"""A worker's trials: an engine that fails leaves the others alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from planted_trees import Table, cpu_lane, table

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.files import read_json, write_json, write_text
from sparkgpu.lanes.worker import Work


def worker(planted: Table, *engines: str) -> Work:
    """A worker of trees with one model for each engine, on a table that is there."""
    paths = planted.paths
    config = config_io.load(options={"also": engines}, assignments=["trees.ntrees=5"])
    write_text(paths.config, config_io.dump(config))
    trials = tuple(
        TrialSpec(name=f"{engine}-s7", model=engine, engine=engine, seed=7, fold=None, lane=0, gang=(0,))
        for engine in engines
    )
    write_json(paths.plan, Plan(preset="fast", lanes=(cpu_lane(),), trials=trials, reasons={}))
    write_json(paths.lane(0).lane, cpu_lane())
    return Work(paths, 0, "trees", planted.paths.root, None)


@pytest.fixture
def planted(tmp_path: Path) -> Table:
    random = np.random.default_rng(1)
    return table(tmp_path, random.integers(0, 2, 600), {"x": random.normal(size=600)})


@pytest.fixture
def no_xgboost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.delitem(sys.modules, "sparkgpu.trees.xgboost_library", raising=False)


def test_an_engine_that_cannot_train_fails_its_own_trial_alone(planted: Table, no_xgboost: None) -> None:
    pytest.importorskip("lightgbm")
    made = worker(planted, "xgboost", "lightgbm")
    assert made.run() == 5
    events = EventReader(planted.paths.lane(0).events("trees")).new()
    first, second = (trial.name for trial in made.plan.trials)
    ends = {event.trial: event.kind for event in events if event.kind in ("trial_done", "trial_failed")}
    assert ends == {first: "trial_failed", second: "trial_done"}
    assert "pip install" in read_json(planted.paths.trial(first).error)["message"]
