"""The faults of processes in short, for every run of the tests: trees and a network that need no JVM."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from injected import Metrics, injected
from running import Running

from sparkgpu.core.rundir.files import read_json

pytestmark = pytest.mark.process

NO_JVM = ("--set", "trees.engine=xgboost", "--set", "neural.epochs=10")


def test_a_run_of_xgboost_needs_no_jvm(undisturbed_run: Callable[..., Running]) -> None:
    run = undisturbed_run(*NO_JVM)
    plan = read_json(run.paths.plan)
    assert (plan["prepared_by"], plan["lanes"][0]["context"]) == ("arrow", "none")
    assert not any("java" in line.split("\0")[0] for line in run.seen.commands)
    assert not run.paths.pipeline.exists()
    assert run.left_behind() == []


def test_a_killed_worker_costs_its_own_trial_which_a_resumed_run_makes_up_for(
    wine: Path, undisturbed: Callable[..., Metrics], tmp_path: Path
) -> None:
    with injected("SIGKILL of a worker without a JVM", "training", wine, tmp_path, *NO_JVM) as case:
        worker = case.process("neural worker")
        case.reach("training", "neural")
        worker.send_signal(signal.SIGKILL)
        assert case.run.wait(60) == 5
        status = {trial["model"]: trial["status"] for trial in case.run.metrics["trials"]}
        assert status == {"trees": "done", "neural": "failed"}
        said = "neural-s7 failed: lane 0: the neural worker was killed by signal 9"
        case.ends("resumable", code=5, said=said, whole=lambda: undisturbed(*NO_JVM))


def test_sigterm_to_all_processes_saves_a_network_whose_checkpoint_was_not_due(
    wine: Path, tmp_path: Path
) -> None:
    long = ("--set", "neural.epochs=20000", "--set", "neural.checkpoint_minutes=10")
    with injected("SIGTERM without a JVM", "training", wine, tmp_path, *NO_JVM, *long) as case:
        worker = case.process("neural worker")
        case.reach("training", "neural")
        case.inject(lambda: (worker.terminate(), case.run.process.terminate()))
        assert case.run.wait(30) == 130
        trial = case.run.paths.trial("neural-s7")
        assert list(trial.checkpoints.glob("epoch-*")) and not trial.done.exists()
        assert f"--resume --out {case.run.paths.root}` goes on from here" in case.run.stderr
        stopped = {"exit_code": 130, "message": "interrupted by SIGTERM"}
        assert read_json(case.run.paths.stopped) == stopped
        case.nothing_left()
        case.line["outcome"] = "resumable"
