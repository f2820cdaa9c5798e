"""One trial of a plan: which model it trains, how, and where."""

from __future__ import annotations

from sparkgpu.config.registry.engines import Branch, branch_of
from sparkgpu.rundir.files import Record


class TrialSpec(Record):
    """One model with one seed and one fold, on one lane or, as a gang, on the devices of several lanes.

    `lane` runs it; `gang` are the lanes whose devices it uses, on each of `nodes` machines. If it is
    `probed`, its engine is tried on the device first, and where that does not train there, `otherwise` takes
    its place. It may search: it tries that many `settings`, which differ in the `free` keys.
    """

    name: str
    model: str
    engine: str
    seed: int
    fold: int | None
    lane: int
    gang: tuple[int, ...]
    strategy: str = "single"
    nodes: int = 1
    probed: bool = False
    otherwise: str | None = None
    settings: int = 0
    free: tuple[str, ...] = ()

    @property
    def branch(self) -> Branch:
        """The kind of its model."""
        return branch_of(self.engine)

    @property
    def num_ranks(self) -> int:
        """The number of processes that train it together, if its strategy uses several."""
        return self.nodes * len(self.gang)
