"""Runs one trial as a gang of ranks on several machines, started by the launcher in the environment.

In each attempt the launcher runs one torchrun on each machine. This process cannot see processes on other
machines: the ranks watch each other (`store_watch`), and their files in the trial's folder, which all
machines must share, show who was at fault.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.rank_command import LAUNCHER, launcher_words
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.neural.launchers.gang import last_line, rank_arguments, train_in_attempts
from sparkgpu.neural.launchers.heartbeat import read_sign
from sparkgpu.trials.engine import NeuralTrial

# The scratch folder and GPUs of this machine only; the launcher gives each machine its own.
_NOT_FOR_OTHERS = ("TMPDIR", "CUDA_VISIBLE_DEVICES")


def train_on_machines(trial: NeuralTrial) -> FitRecord:
    """Train with the ranks of all machines of a batch job.

    Raises `TrialError`, too, when the environment's launcher fails before any rank is there.
    """
    spec, logs, launcher = trial.spec, trial.paths.rank_logs, launcher_words()
    where = f'neural.strategy = "{spec.strategy}" on {spec.num_ranks} ranks of {spec.nodes} machines'

    def attempt(folder: Path) -> None:
        output = logs / "launcher.log"
        arguments = [*rank_arguments(trial, folder), "--output", str(logs), "--meet", "agent"]
        with output.open("ab") as log:
            status = subprocess.run(
                [*launcher, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in os.environ.items() if key not in _NOT_FOR_OTHERS},
            ).returncode
        if all(read_sign(folder, rank) is None for rank in range(spec.num_ranks)):
            raise TrialError(
                f"{trial.name}: no rank started with {where}: {launcher[0]} ended with status {status}, "
                f"{last_line(output)}. Check {LAUNCHER} and {output}."
            )

    return train_in_attempts(
        trial,
        trial.paths.gang,
        attempt,
        num_ranks=spec.num_ranks,
        most_restarts=trial.parameters.max_restarts,
        where=where,
    )
