"""Runs one trial as a gang of ranks on several machines, started by the launcher in the environment.

The launcher runs one torchrun on each machine. Their agents find each other, start the ranks, and start all
of them again from the last checkpoint if one is lost. This process cannot see processes on other machines:
the process group's timeout ends a rank that hangs, and the files of the ranks in the trial's folder show who
was at fault. All machines must share that folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.rank_command import LAUNCHER, launcher_words
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.neural.launchers.gang_files import (
    attempts,
    finished_record,
    loss,
    rank_arguments,
    refusal,
    write_trial,
)
from sparkgpu.trials.engine import NeuralTrial

# The scratch folder and GPUs of this machine only; the launcher gives each machine its own.
_NOT_FOR_OTHERS = ("TMPDIR", "CUDA_VISIBLE_DEVICES")


class Machines:
    """A launcher (`sparkgpu.neural.launchers.base.Launcher`) over the machines of a batch job."""

    def run(self, trial: NeuralTrial) -> FitRecord:
        """Fails, too, when the environment's launcher does before any rank is there."""
        spec, folder, logs = trial.spec, trial.paths.gang, trial.paths.rank_logs
        shutil.rmtree(folder, ignore_errors=True)  # left by a run that was stopped
        folder.mkdir(parents=True)
        logs.mkdir(exist_ok=True)
        write_trial(trial, folder)
        launcher = launcher_words()
        arguments = [*rank_arguments(trial, folder), "--meet", "agent", "--output", str(logs)]
        output = logs / "launcher.log"
        with output.open("ab") as log:
            status = subprocess.run(
                [*launcher, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in os.environ.items() if key not in _NOT_FOR_OTHERS},
            ).returncode
        if refused := refusal(folder):
            raise refused
        losses = [loss(attempt, spec.num_ranks, logs) for attempt in attempts(folder)]
        if not losses or losses[-1] is not None:
            raise TrialError(_failure(spec, losses, launcher[0], status, output))
        record = finished_record(folder, [lost for lost in losses if lost is not None])
        shutil.rmtree(folder)
        return record


def _failure(spec: TrialSpec, losses: list[str | None], program: str, status: int, output: Path) -> str:
    where = f'neural.strategy = "{spec.strategy}" on {spec.num_ranks} ranks of {spec.nodes} machines'
    if not losses:
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = f"its last output: {lines[-1].strip()!r}" if lines else "it wrote nothing"
        return (
            f"{spec.name}: no rank started with {where}: {program} ended with status {status}, {last}. "
            f"Check {LAUNCHER} and {output}."
        )
    number = "1 attempt" if len(losses) == 1 else f"{len(losses)} attempts"
    given_up = f"Given up after {number} with {where}; their logs are in {output.parent}."
    return f"{spec.name}: {losses[-1]}. {given_up}"
