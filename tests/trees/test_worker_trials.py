"""A worker's trials: an engine that fails, or H2O that does not start, leaves the others alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_trees import Table, cpu_lane, table

from sparkgpu.config import toml as config_io
from sparkgpu.errors import TrialError
from sparkgpu.lanes.lane_java import LaneJava
from sparkgpu.lanes.worker import Work
from sparkgpu.plan.plan import Plan
from sparkgpu.plan.trial_spec import TrialSpec
from sparkgpu.rundir.events import EventReader
from sparkgpu.rundir.files import read_json, write_json, write_text


def worker(planted: Table, *engines: str) -> Work:
    """A worker of trees with one model for each engine, on a table that is there."""
    paths = planted.paths
    added = [name for name in engines if name != "h2o-xgboost"]
    config = config_io.load(options={"also": added}, assignments=["trees.ntrees=5"])
    write_text(paths.config, config_io.dump(config))
    trials = tuple(
        TrialSpec(name=f"{name}-s7", model=name, engine=engine, seed=7, fold=None, lane=0, gang=(0,))
        for engine in engines
        for name in ("trees" if engine == "h2o-xgboost" else engine,)
    )
    write_json(paths.plan, Plan(preset="fast", lanes=(cpu_lane(),), trials=trials, reasons={}))
    write_json(paths.lane(0).lane, cpu_lane())
    return Work(paths, 0, "trees", planted.paths.root, None)


@pytest.fixture
def planted(tmp_path: Path) -> Table:
    random = np.random.default_rng(1)
    return table(tmp_path, random.integers(0, 2, 600), {"x": random.normal(size=600)})


@pytest.fixture
def no_h2o(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is taken for started, and H2O refuses."""

    @contextmanager
    def no_spark(self: Any, *, h2o: bool) -> Iterator[None]:
        yield None

    def refused(self: Any, *session: Any) -> None:
        raise TrialError("H2O did not start: no port is free.")

    monkeypatch.setattr(Work, "_spark", no_spark)
    monkeypatch.setattr(LaneJava, "h2o_in", refused)


def ends(planted: Table) -> dict[str, str]:
    events = EventReader(planted.paths.lane(0).events("trees")).new()
    return {event.trial or "": event.kind for event in events if event.kind in ("trial_done", "trial_failed")}


def test_a_library_that_cannot_be_imported_fails_its_own_trial(
    planted: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.delitem(sys.modules, "sparkgpu.engines.trees.xgboost_library", raising=False)
    made = worker(planted, "xgboost", "lightgbm")
    made.run()
    assert made.failed
    assert ends(planted) == {"xgboost-s7": "trial_failed", "lightgbm-s7": "trial_done"}
    assert "pip install" in read_json(planted.paths.trial("xgboost-s7").error)["message"]


def test_without_h2o_the_other_engines_train(planted: Table, no_h2o: None) -> None:
    pytest.importorskip("lightgbm")
    made = worker(planted, "h2o-xgboost", "lightgbm")
    made.run()
    assert made.failed
    assert ends(planted) == {"trees-s7": "trial_failed", "lightgbm-s7": "trial_done"}
    assert read_json(planted.paths.trial("trees-s7").error)["message"].startswith("H2O did not start")


def test_without_h2o_and_without_another_engine_the_worker_fails(planted: Table, no_h2o: None) -> None:
    with pytest.raises(TrialError, match="H2O did not start"):
        worker(planted, "h2o-xgboost").run()
