"""A killed run resumes where it stopped, with the same result; and one network over several lanes."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from running import COMMAND, finished, started, until, write_table

from sparkgpu.core.host.telemetry import read_telemetry
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.files import read_json

SETTINGS = (
    "--set", "trees.ntrees=20", "--set", "neural.epochs=80", "--set", "neural.hidden=[64,32]",
    "--set", "neural.patience=0", "--set", "neural.architecture=mlp", "--set", "neural.batch_size=32",
    "--set", "neural.checkpoint_minutes=1e-6", "--set", "report.level=short",
)  # fmt: skip


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("xgboost", marks=pytest.mark.process),
        pytest.param("h2o-xgboost", marks=[pytest.mark.slow, pytest.mark.spark]),
    ],
)
def test_a_killed_run_goes_on_to_the_result_it_would_have_had(engine: str, tmp_path: Path) -> None:
    cancer = write_table("breast_cancer", tmp_path)
    command = [*COMMAND, "run", cancer, "--target", "target", "--cpu-lanes", "1", *SETTINGS,
               "--set", f"trees.engine={engine}"]  # fmt: skip
    whole = finished(command, tmp_path / "whole", tmp_path)
    out = tmp_path / "killed"
    checkpoints = out / "trials" / "neural-s7" / "checkpoints"
    with started(command, out, tmp_path) as run:
        until(lambda: bool(list(checkpoints.glob("epoch-000[1-9]*"))), "ten epochs", 90, run.process)
        for again in (("--resume",), (str(cancer), "--target", "target")):
            second = subprocess.run(
                [*COMMAND, "run", *again, "--out", str(out)], capture_output=True, text=True
            )
            assert (second.returncode, f"process {run.process.pid} of " in second.stderr) == (2, True)
        run.signal(signal.SIGKILL)
    first = [sample.elapsed_s for sample in read_telemetry(run.paths.telemetry)][-1]
    resumed = finished([*COMMAND, "run", "--resume"], out, tmp_path)
    assert "writing the table" not in resumed.stdout
    assert re.search(r"preset +fast, as the run began\n", resumed.stdout)
    fit = read_json(out / "trials" / "neural-s7" / "fit.json")
    assert fit["notes"][0].startswith("resumed from a checkpoint after epoch ")
    events = EventReader(run.paths.lane(0).events("neural")).new()
    assert any(event.kind == "phase" and event.done for event in events)
    for name in ("models", "comparison"):
        assert resumed.metrics[name] == whole.metrics[name]
    part_s = [sample.elapsed_s for sample in read_telemetry(run.paths.telemetry)][-1]
    assert resumed.metrics["run"]["wall_s"] >= first + part_s > first


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_killed_while_its_pipeline_was_saved_makes_its_table_again(tmp_path: Path) -> None:
    wine = write_table("wine", tmp_path)
    command = [*COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "1", *SETTINGS]
    whole = finished(command, tmp_path / "out", tmp_path).metrics
    shutil.rmtree(tmp_path / "out" / "pipeline")
    again = finished([*COMMAND, "run", "--resume"], tmp_path / "out", tmp_path, within_s=30)
    assert again.metrics["models"] == whole["models"]
    about, before = again.metrics["run"], whole["run"]
    assert abs(datetime.fromisoformat(about["started_at"]) - datetime.fromisoformat(before["started_at"])) < (
        timedelta(seconds=5)
    )
    assert about["wall_s"] > before["wall_s"] and about["peak_rss_bytes"] >= before["peak_rss_bytes"]
    assert "writing the table" in again.stdout and (again.paths.pipeline / "metadata").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_one_network_is_trained_over_the_devices_of_two_lanes(tmp_path: Path) -> None:
    wine = write_table("wine", tmp_path)
    settings = [*SETTINGS, "--set", "neural.epochs=3", "--cpu-lanes", "2", "--strategy", "ddp"]
    run = finished([*COMMAND, "run", wine, "--target", "target", "--task", "multiclass", *settings],
                   tmp_path / "out", tmp_path)  # fmt: skip
    (neural,) = (trial for trial in run.metrics["trials"] if trial["model"] == "neural")
    assert (neural["strategy"], neural["devices"]) == ("ddp", ["cpu", "cpu"])
    assert neural["device_proof"]["num_ranks"] == 2
    plan = Plan.model_validate(read_json(run.paths.plan))
    assert [trial.name for trial in plan.trials] == ["trees-s7", "neural-s7"]
    assert not any(listener[0] not in ("127.0.0.1", "::1") for listener in run.seen.listeners)
