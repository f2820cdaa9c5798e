"""Trees that grow take all cores of their lane when the other branch has ended: between two rounds only.

On the CPU the branches divide the lane's cores, since two teams of threads on one core wait for each other at
every barrier. So a team grows only when the other one is gone. The trees stay the same. Trees that one core
grows in milliseconds keep it: their hundreds of barriers cost more than a second core brings, and many times
more if other work delays one of the two.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sparkgpu.engines.engine import TreesTrial
from sparkgpu.plan.tree_defaults import TableSize, each_round_s

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

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


class FreeCoresOfH2O:
    """Gives the model that grows in H2O, on a node inside this JVM, the cores that become free."""

    def __init__(self, java: JVMView, model_id: str, trial: TreesTrial) -> None:
        self._java = java
        self._model_id = model_id
        self._free = FreeCores(trial)
        self._threads: int | None = None
        self.given: int | None = None
        """The threads that the model grows with since."""

    def look(self) -> None:
        """Called again and again; it waits for the end of a round only when it has threads to give."""
        self._threads = self._threads or self._free.found()
        if self._threads is None or self.given is not None:
            return
        if self._java.hex.tree.xgboost.task.BoosterThreads.set(self._model_id, self._threads):
            self.given = self._threads  # else no tree grows: not yet, or no more
