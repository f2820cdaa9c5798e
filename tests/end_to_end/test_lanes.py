"""Every lane has a Spark session with H2O in it; a run of other trees has no JVM."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from running import COMMAND, SMALL, finished, started, until

from sparkgpu.core.rundir.files import read_json

pytestmark = pytest.mark.spark


def jvms(run: Any) -> list[psutil.Process]:
    """The JVMs of the tree workers, by lane."""
    workers = [run.worker(lane, "trees") for lane in range(2)]
    return [next(child for child in worker.children() if child.name() == "java") for worker in workers]


def shows_its_threads(java: psutil.Process, log: Path) -> bool:
    """Whether a JVM has printed threads of Spark, of H2O, and of a training; it is asked once more."""
    java.send_signal(signal.SIGQUIT)
    time.sleep(0.5)
    threads = ('"dag-scheduler-event-loop"', '"FJ-', "hex.tree.xgboost")
    return all(thread in log.read_text(encoding="utf-8") for thread in threads)


def test_each_lane_has_its_spark_session_with_h2o_in_it(wine: Path, tmp_path: Path) -> None:
    command = [
        *COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "2", *SMALL, "--set", "trees.ntrees=5000",
        "--set", "trees.learn_rate=0.0001", "--set", "trees.early_stopping_rounds=0",
    ]  # fmt: skip
    with started(command, tmp_path / "out", tmp_path) as run:
        for lane in range(2):
            run.wait_for_phase("training", lane, "trees")
        for lane, process in enumerate(jvms(run)):
            log = run.paths.lane(lane).log
            until(partial(shows_its_threads, process, log), f"Spark and H2O in {log}", 30.0, run.process)
        plan = read_json(run.paths.plan)
        assert [lane["context"] for lane in plan["lanes"]] == ["spark + h2o"] * 2
        assert [read_json(run.paths.lane(lane).lane)["context"] for lane in range(2)] == ["spark + h2o"] * 2
        assert (plan["prepared_by"], "Spark's pipeline" in plan["reasons"]["prepare"]) == ("spark", True)


def test_a_run_of_xgboost_needs_no_jvm(wine: Path, tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    command = [*COMMAND, "run", wine, "--target", "target", "--set", "trees.engine=xgboost", *SMALL]
    run = finished(command, tmp_path / "out", tmp_path)
    plan = read_json(run.paths.plan)
    assert (plan["prepared_by"], plan["lanes"][0]["context"]) == ("arrow", "none")
    assert not any("java" in line.split("\\0")[0] for line in run.seen.commands)
    assert not run.paths.pipeline.exists()
    assert run.left_behind() == []
