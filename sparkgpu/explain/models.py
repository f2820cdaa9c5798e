"""The models of a run and their time: each question goes to all of them, and comes back by model.

G classes or 1, P points of a grid.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkgpu.explain.columns import Places
from sparkgpu.explain.messages import Curve, Draw, Drop, Grid, Loaded, Refused, Shuffle
from sparkgpu.explain.processes import Processes
from sparkgpu.explain.sample import Sample
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema

_WITH_CALL = 4 / 3  # `asking` gives a call so many rows that they take three parts of its time


@dataclass(kw_only=True)
class Asking:
    """The models of a run and the sample that they are asked about, until a time.

    `loaded` are the models that answer, `refused` those that do not, and why. `notes` are for the report.
    """

    schema: TableSchema
    sample: Sample
    processes: Processes
    seed: int
    until: float
    loaded: dict[str, Loaded] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def load(self, by: float) -> None:
        for answer in self.processes.ask(self.sample, by):
            if isinstance(answer, Loaded):
                self.loaded[answer.model] = answer
            elif isinstance(answer, Refused):
                self.refused[answer.model] = answer.reason

    def left_s(self) -> float:
        return self.until - time.time()

    def row_s(self) -> float:
        """The seconds for a row in all models with its part of a call, as if one process held them."""
        return _WITH_CALL * sum(one.row_s for one in self.loaded.values())

    def shuffled(
        self, groups: Sequence[Places], rows: int, rounds: int, until: float
    ) -> dict[str, dict[int, list[float]]]:
        """By model and group: what each shuffle costs."""
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        order = Shuffle(groups=tuple(groups), rows=rows, rounds=rounds, seed=self.seed, until=until)
        for answer in self.processes.ask(order, self.until):
            if isinstance(answer, Drop):
                found[answer.model][answer.group].append(answer.drop)
        return found

    def drawn(self, grids: Sequence[Grid], rows: int, until: float) -> dict[tuple[str, int], FloatArray]:
        """By model and grid: mean predictions (P, G)."""
        order = Draw(grids=tuple(grids), rows=rows, until=until)
        return {
            (answer.model, answer.grid): answer.mean_PG
            for answer in self.processes.ask(order, self.until)
            if isinstance(answer, Curve)
        }
