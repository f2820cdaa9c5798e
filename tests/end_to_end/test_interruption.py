"""However a run is interrupted, all its processes end; and a lane that dies does not affect the others."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest
from running import COMMAND, SMALL, Running, started, until

from sparkgpu.core.rundir.files import read_json

pytestmark = pytest.mark.spark

BOUND_S = 5.0
LONG = (
    "--set", "trees.ntrees=20000", "--set", "trees.early_stopping_rounds=0", "--set", "neural.epochs=20000",
)  # fmt: skip


def assert_nothing_left(run: Running, since: float) -> None:
    """Check that no process and no listener of the run is left within the bound."""
    last: list[str] = ["not looked yet"]

    def nothing() -> bool:
        last[:] = run.left_behind()
        return not last

    try:
        until(nothing, "nothing is left", BOUND_S - (time.monotonic() - since))
    except AssertionError:
        raise AssertionError(f"left after {BOUND_S:g} s: {last}") from None


def _interrupted(run: Running, *, has_table: bool) -> str:
    """The messages of an interrupted run, with the path of its log if its folder is removed."""
    end = "sparkgpu: interrupted; all lanes were stopped.\n"
    if has_table:
        return f"sparkgpu: `sparkgpu run --resume --out {run.paths.root}` goes on from here\n{end}"
    log = run.paths.root.with_name(f"{run.paths.root.name}.interrupted.log")
    assert "== lanes/0/trees.events.jsonl\n" in log.read_text(encoding="utf-8")
    assert not run.paths.root.exists()
    return f"sparkgpu: there was no table yet, so the run's folder was removed; its log is {log}\n{end}"


def test_ctrl_c_ends_everything_within_five_seconds(wine_in_parts: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "run", wine_in_parts, "--target", "target", "--cpu-lanes", "1", *LONG]
    with started(command, tmp_path / "out", tmp_path) as run:
        run.wait_for_phase("training", 0, "trees")
        run.look()
        assert len(run.seen.listeners) >= 3  # H2O, Spark's driver and its block manager
        since = run.signal(signal.SIGINT)
        assert run.wait(BOUND_S) == 130
        assert_nothing_left(run, since)
        assert run.stderr == _interrupted(run, has_table=True)
        assert "Traceback" not in run.stdout
        assert [folder for folder in run.scratch_folders if folder.exists()] == []
        assert not run.paths.metrics.exists()
        assert read_json(run.paths.stopped) == {"exit_code": 130, "message": "interrupted"}


@pytest.mark.parametrize(
    ("number", "options"), [(signal.SIGINT, ()), (signal.SIGTERM, ("--quiet",))], ids=["Ctrl-C", "batch"]
)
def test_while_spark_starts_further_signals_change_nothing(
    wine_in_parts: Path, tmp_path: Path, number: signal.Signals, options: tuple[str, ...]
) -> None:
    command = [*COMMAND, "run", wine_in_parts, "--target", "target", "--cpu-lanes", "1", *options]
    with started(command, tmp_path / "out", tmp_path) as run:
        run.wait_for_jvm()
        run.wait_for_phase("starting Spark", 0, "trees")
        since = run.signal(number)
        while run.process.poll() is None and time.monotonic() - since < BOUND_S:
            time.sleep(0.03)
            run.process.send_signal(number)
        assert run.wait(BOUND_S) == 130
        assert_nothing_left(run, since)
        assert run.stderr == _interrupted(run, has_table=False)
        assert "Traceback" not in run.stdout and (not options or run.stdout == "")
        assert [folder for folder in run.scratch_folders if folder.exists()] == []


def test_a_parent_that_is_killed_leaves_nothing_alive(wine_in_parts: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "run", wine_in_parts, "--target", "target", "--cpu-lanes", "1", *LONG]
    with started(command, tmp_path / "out", tmp_path) as run:
        run.wait_for_phase("writing the table", 0, "trees")
        run.look()
        assert len(run.seen.processes) >= 4  # the parent, two workers, the JVM
        assert len(run.seen.listeners) >= 2  # Spark's driver and its block manager
        since = run.signal(signal.SIGKILL)
        assert run.wait(BOUND_S) == -signal.SIGKILL
        assert_nothing_left(run, since)


@pytest.mark.slow
def test_a_lane_whose_worker_is_killed_is_reported_and_the_others_results_are_kept(
    wine: Path, tmp_path: Path
) -> None:
    command = [*COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "2", *SMALL]
    with started(command, tmp_path / "out", tmp_path) as run:
        run.wait_for_phase("starting H2O", 1, "trees")
        run.worker(1, "trees").send_signal(signal.SIGKILL)
        assert run.wait(120) == 5
        assert run.left_behind() == []
        log = run.paths.lane(1).log
        reason = f"lane 1: the trees worker was killed by signal 9 (out of memory?); see {log}."
        assert f"trees-s8 failed: {reason}" in run.stdout
        assert "Traceback" not in run.stdout + run.stderr
        assert read_json(run.paths.lane(1).root / "error.json") == {
            "branch": "trees", "kind": "trial", "message": reason,
        }  # fmt: skip
        metrics = run.metrics
        status = {trial["name"]: trial["status"] for trial in metrics["trials"]}
        assert status == {
            "trees-s7": "done", "neural-s7": "done", "trees-s8": "failed", "neural-s8": "done",
        }  # fmt: skip
        failed = next(trial for trial in metrics["trials"] if trial["status"] == "failed")
        assert (failed["error"], failed["metrics"]) == (reason, {"valid": {}, "test": {}})
        models = {model["name"]: model for model in metrics["models"]}
        assert {name: found["status"] for name, found in models.items()} == {
            "trees": "partial", "neural": "done", "blend": "done",
        }  # fmt: skip
        assert models["trees"]["trials"] == ["trees-s7"]
        assert metrics["comparison"]["pairs"]
        assert reason in (run.paths.report / "report.md").read_text(encoding="utf-8").replace("\\", "")


@pytest.mark.slow
def test_the_jvm_of_a_lane_that_is_killed_is_reported_too(wine: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "1", "--set", "neural.epochs=2",
               "--set", "trees.ntrees=20000", "--set", "trees.early_stopping_rounds=0"]  # fmt: skip
    with started(command, tmp_path / "out", tmp_path) as run:
        run.wait_for_phase("training", 0, "trees")
        (jvm,) = (child for child in run.worker(0, "trees").children() if child.name() == "java")
        jvm.send_signal(signal.SIGKILL)
        psutil.wait_procs([jvm], timeout=5)
        assert run.wait(120) == 5
        assert run.left_behind() == []
        status = {trial["name"]: trial["status"] for trial in run.metrics["trials"]}
        assert status == {"trees-s7": "failed", "neural-s7": "done"}
        assert "Traceback" not in run.stdout + run.stderr
