"""What starts the ranks of one network and brings back what came of it."""

from __future__ import annotations

from typing import Protocol

from sparkgpu.engines.engine import NeuralTrial
from sparkgpu.rundir.records import FitRecord


class Launcher(Protocol):
    """One way to start ranks: on this machine, on several, or in the executors of a Spark cluster."""

    def run(self, trial: NeuralTrial) -> FitRecord:
        """Train with a rank for each device of the trial's gang, again from the last checkpoint when one is
        lost.

        Raises `TrialError` when that happens too often, and what a rank refuses.
        """
