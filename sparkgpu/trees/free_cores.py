"""Trees that grow take all cores of their lane when the other branch has ended: between two rounds only.

For libraries that train in this process; H2O keeps the number of threads that a training began with.

On the CPU the branches divide the lane's cores, since two teams of threads on one core wait for each other at
every barrier. So a team grows only when the other one is gone. The trees stay the same. Trees that one core
grows in milliseconds keep it: their hundreds of barriers cost more than a second core brings, and many times
more if other work delays one of the two.
"""

from __future__ import annotations

import time

from sparkgpu.core.plan.tree_defaults import TableSize, each_round_s
from sparkgpu.trials.engine import TreesTrial

_LOOK_EVERY_S = 0.4
_LEAST_TREE_S = 0.02


class FreeCores:
    """Asked while trees grow, it says at most once how many threads they have from there on."""

    def __init__(self, trial: TreesTrial) -> None:
        self._trial = trial
        lane = trial.lane
        has_more = lane.tree_threads < lane.threads and not trial.parameters.on_gpu
        size = TableSize.of(trial.schema)
        tree_s = each_round_s(trial.parameters, size) / size.trees_per_round
        self._waits = has_more and tree_s >= _LEAST_TREE_S
        self._next = 0.0

    def found(self) -> int | None:
        """The lane's threads, once its other branch has ended; looks at its files every 0.4 s."""
        now = time.monotonic()
        if not self._waits or now < self._next:
            return None
        self._next = now + _LOOK_EVERY_S
        if not self._trial.cores_are_free():
            return None
        self._waits = False
        return self._trial.lane.threads
