"""What starts the ranks of one network and brings back what came of it."""

from __future__ import annotations

from typing import Protocol

from sparkgpu.engines.engine import NeuralTrial
from sparkgpu.rundir.records import FitRecord


class Launcher(Protocol):
    """One way to start ranks: on this machine, on several, or in the executors of a Spark cluster."""

    def run(self, trial: NeuralTrial) -> FitRecord:
        """Train with a rank for each device of the trial's gang.

        After a lost rank all start again from the last checkpoint. Raises `TrialError` when that happens too
        often, and what a rank refuses.
        """
