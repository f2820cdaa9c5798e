"""The models of a run, asked about changed rows until the time is over.

Many changes go into one call, since a call has a price of its own. Nothing begins that would not be done in
time.

N rows, P points of a grid or changed copies of the rows, G classes or 1.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.results import DoneTrial
from sparkgpu.core.table.rows import Rows, joined
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.predict.explain.columns import Places
from sparkgpu.predict.explain.sample import Sample
from sparkgpu.score.calibration import scaled
from sparkgpu.score.metrics import primary, primary_value, score
from sparkgpu.score.rows import FloatArray
from sparkgpu.trials.engine import Model

_CALL_S = 0.3  # a call shall take: short, so that the time limit holds
_MOST_VALUES = 8_000_000  # in the copies of a call: 32 MB
_FIRST_ROWS = 100


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The values of one feature that all rows get, one after the other, and how people see them.

    `numeric` and `codes` hold a place and its values (P,). `at` are numbers or levels; `deciles` or `shares`
    tell where the rows lie.
    """

    numeric: tuple[tuple[int, NDArray[Any]], ...] = ()
    codes: tuple[tuple[int, NDArray[Any]], ...] = ()
    at: tuple[float, ...] | tuple[str, ...]
    deciles: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()


class AskedModel:
    """A model of the run through one of its trials, its metric `value` on the sample, and its speed."""

    def __init__(
        self, name: str, trial: DoneTrial, model: Model, schema: TableSchema, sample: Sample
    ) -> None:
        self.name, self.trial = name, trial
        self._model, self._schema, self._sample = model, schema, sample
        self._predict(sample.first(_FIRST_ROWS).rows)  # libraries set themselves up in their first call
        start = time.perf_counter()
        values = self._predict(sample.rows)
        self.row_s = (time.perf_counter() - start) / len(sample)
        self.value = self._metric(sample, values)

    def drops(
        self, rows: int, groups: Sequence[Places], seed: tuple[int, int], until: float
    ) -> Iterator[tuple[int, float]]:
        """Each group's place, and by how much the score is lower with it shuffled, while there is time."""
        kept = self._sample.first(rows)
        metric, size = primary(self._schema.task, self._schema.metric), len(kept)
        whole = self._metric(kept, self._predict(kept.rows))
        step = self._copies_in_call(size)
        for begin in range(0, len(groups), step):
            own_groups = groups[begin : begin + step]
            if whole is None or time.time() + len(own_groups) * size * self.row_s > until:
                return
            copies = joined([kept.rows] * len(own_groups))
            for place, group in enumerate(own_groups):
                own = slice(place * size, (place + 1) * size)
                order_N = np.random.default_rng((*seed, begin + place)).permutation(size)  # for every model
                for number in group.numeric:
                    copies.numeric_NF[own, number] = kept.rows.numeric_NF[order_N, number]
                for code in group.codes:
                    copies.codes_NK[own, code] = kept.rows.codes_NK[order_N, code]
            for place, values in enumerate(np.split(self._predict(copies), len(own_groups))):
                found = self._metric(kept, values)
                assert found is not None  # the labels are the same
                yield begin + place, score(metric, whole) - score(metric, found)

    def curve(self, rows: int, grid: Grid) -> FloatArray:
        """The mean predictions along the grid, (P, G)."""
        kept = self._sample.first(rows)
        points, size, means = len(grid.at), len(kept), []
        step = self._copies_in_call(size)
        for begin in range(0, points, step):
            own = slice(begin, min(begin + step, points))
            copies = joined([kept.rows] * (own.stop - begin))
            for place, value_P in grid.numeric:
                copies.numeric_NF[:, place] = np.repeat(value_P[own], size)
            for place, code_P in grid.codes:
                copies.codes_NK[:, place] = np.repeat(code_P[own], size)
            for values in np.split(self._predict(copies), own.stop - begin):
                means.append(np.atleast_1d(np.average(values, axis=0, weights=kept.weight_N)))
        return np.stack(means)

    def _predict(self, rows: Rows) -> FloatArray:
        """Values (N,) or probabilities (N, G), as the run predicts."""
        values = np.asarray(self._model.predict(rows), np.float64)
        if self.trial.temperature is not None:
            values = scaled(values, self.trial.temperature)
        return values / values.sum(axis=1, keepdims=True) if self._schema.classes else values

    def _copies_in_call(self, rows: int) -> int:
        """How many copies of so many rows one call takes."""
        width = len(self._schema.features) + self._schema.num_outputs
        return max(1, int(min(_CALL_S / max(self.row_s, 1e-9), _MOST_VALUES / width) / rows))

    def _metric(self, sample: Sample, values: FloatArray) -> float | None:
        task, asked = self._schema.task, self._schema.metric
        return primary_value(task, sample.rows.label_N, values, sample.weight_N, asked=asked)


@dataclass(kw_only=True)
class Models:
    """The models that answer, all about the same `sample`, until `until` in seconds since the epoch.

    `notes` are for the report.
    """

    models: list[AskedModel]
    schema: TableSchema
    sample: Sample
    seed: int
    until: float
    notes: list[str]

    @property
    def row_s(self) -> float:
        """The seconds for a row in all models."""
        return sum(one.row_s for one in self.models)

    def shuffled(
        self, groups: Sequence[Places], rows: int, rounds: int, until: float
    ) -> dict[str, dict[int, list[float]]]:
        """By model and group: what each shuffle of the first `rows` rows costs.

        Round by round, so that the models share the time.
        """
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for round_ in range(rounds):
            for model in self.models:
                for group, drop in model.drops(rows, groups, (self.seed, round_), until):
                    found[model.name][group].append(drop)
        return found

    def drawn(self, grids: Sequence[Grid], rows: int) -> dict[int, dict[str, FloatArray]]:
        """By grid and model: mean predictions (P, G) of the first `rows` rows; the leading feature first."""
        found: dict[int, dict[str, FloatArray]] = defaultdict(dict)
        for number, grid in enumerate(grids):
            for model in self.models:
                if time.time() + len(grid.at) * rows * model.row_s <= self.until:
                    found[number][model.name] = model.curve(rows, grid)
        return found
