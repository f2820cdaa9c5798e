"""The interface that starts the ranks of one network and returns the result."""

from __future__ import annotations

from typing import Protocol

from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.trials.engine import NeuralTrial


class Launcher(Protocol):
    """One way to start ranks: on this machine, on several, or in the executors of a Spark cluster."""

    def run(self, trial: NeuralTrial) -> FitRecord:
        """Train with a rank for each device of the trial's gang.

        After a lost rank, all ranks start again from the last checkpoint. Raises `TrialError` if that happens
        too often, and the refusal of a rank.
        """
