"""A worker's trials: a failure leaves the others alone, and trees without memory wait for the network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
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
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.lanes import worker as worker_module
from sparkgpu.lanes.worker import Work
from sparkgpu.trials.engine import TreesTrial


def worker(
    planted: Table, *engines: str, device: str = "cpu", master: str | None = None, probed: bool = False
) -> Work:
    """A worker of trees with one model for each engine, on a table that is there."""
    paths, lane = planted.paths, cpu_lane().model_copy(update={"device": device})
    added = [name for name in engines if name != "h2o-xgboost"]
    config = config_io.load(options={"also": added}, assignments=["trees.ntrees=5"])
    write_text(paths.config, config_io.dump(config))
    trials = tuple(
        TrialSpec(
            name=f"{name}-s7", model=name, engine=engine, seed=7, fold=None, lane=0, gang=(0,),
            probed=probed and engine == "h2o-xgboost", otherwise="xgboost",
        )
        for engine in engines
        for name in ("trees" if engine == "h2o-xgboost" else engine,)
    )  # fmt: skip
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


def fails_on_gpu(order: list[str], monkeypatch: pytest.MonkeyPatch, reason: str | None) -> None:
    """H2O and its JVM are taken for started on a GPU, and so is the probe."""

    @contextmanager
    def spark(self: Work, *, h2o: bool) -> Iterator[Mock]:
        yield Mock()
        order.append("the JVM ended")

    monkeypatch.setattr(Work, "_spark", spark)
    monkeypatch.setattr("sparkgpu.h2o.context.start_h2o", lambda *_, **__: Mock())
    monkeypatch.setattr("sparkgpu.h2o.probe.why_not_on_gpu", lambda events: reason)
    monkeypatch.setattr("sparkgpu.prepare.pyspark_internals.java_of", lambda session: None)
    monkeypatch.setattr(worker_module, "end", Mock(side_effect=AssertionError("trained beside H2O")))


def test_the_jvm_of_an_h2o_that_cannot_use_the_gpu_ends_before_another_engine_opens_it(
    planted: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("sparkgpu.trees.xgboost_library")
    order, fit = list[str](), library.XGBoost.fit
    fails_on_gpu(order, monkeypatch, "no kernel image")

    def noted(*given: Any) -> Any:
        order.append("xgboost trained")
        return fit(*given)

    monkeypatch.setattr(library.XGBoost, "fit", noted)
    assert worker(planted, "h2o-xgboost", probed=True).run() == 0
    assert order == ["the JVM ended", "xgboost trained"]
    assert read_json(planted.paths.trial("trees-s7").fit)["notes"] == [
        "trained by xgboost: h2o-xgboost does not train on CPU: no kernel image"
    ]


_ON_A_REAL_JVM = """
import sys
from pathlib import Path
import numpy as np, psutil
from planted_trees import table
from test_worker_trials import worker
from sparkgpu.core.host.reservations import reserved_ports
from sparkgpu.trees.xgboost_library import XGBoost
fit, random = XGBoost.fit, np.random.default_rng(1)
def noted(*given):
    print("JVMs:", sum("java" in child.name() for child in psutil.Process().children(recursive=True)))
    return fit(*given)
XGBoost.fit = noted
planted = table(Path(sys.argv[1]), random.integers(0, 2, 600), {"x": random.normal(size=600)})
with reserved_ports(1) as (base,):
    work = worker(planted, "h2o-xgboost", probed=True)
    work.lane = work.lane.model_copy(update={"port_base": base})
    print("status:", work.run(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.spark
def test_on_this_machine_h2os_probe_fails_and_its_jvm_ends(tmp_path: Path, java: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_REAL_JVM, str(tmp_path)], capture_output=True, text=True, timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])},
    )  # fmt: skip
    assert "JVMs: 0\n" in done.stdout and "status: 0\n" in done.stdout, done.stderr[-2000:]
    notes = read_json(RunPaths(root=tmp_path).trial("trees-s7").fit)["notes"]
    assert "h2o-xgboost does not train on CPU: " in notes[0]
