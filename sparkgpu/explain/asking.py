"""Asks one model about changed rows: many changes in one call, since a call has a price of its own.

N rows, P changed copies of them, G classes or 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.engines.engine import Model
from sparkgpu.explain.messages import Curve, Draw, Drop, Grid, Shuffle
from sparkgpu.explain.sample import Sample
from sparkgpu.score.calibration import scaled
from sparkgpu.score.metrics import primary, primary_value, score
from sparkgpu.table.rows import Rows, joined
from sparkgpu.table.schema import TableSchema

_CALL_S = 0.3  # a call shall take: short, so that the time limit holds
_LEAST_SHARE = 0.75  # of a call's time for its rows, where they are what costs
_MOST_VALUES = 8_000_000  # in the copies of a call: 32 MB
_TIMED_ROWS = 100


@dataclass(kw_only=True)
class Asked:
    """One loaded model, its temperature, and how fast it answers, once `ask_first` has been called."""

    name: str
    model: Model
    temperature: float | None
    schema: TableSchema
    call_s: float = 0.0
    row_s: float = 0.0

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,) or probabilities (N, G), as the run predicts."""
        values = np.asarray(self.model.predict(rows), np.float64)
        if self.temperature is not None:
            values = scaled(values, self.temperature)
        return values / values.sum(axis=1, keepdims=True) if self.schema.classes else values

    def ask_first(self, sample: Sample) -> float | None:
        """The metric on the sample, its natural value. Measures the time of a call and of a row."""
        few = sample.first(_TIMED_ROWS)
        self.predict(few.rows)  # libraries set themselves up in their first call
        few_s, _ = self._timed(few.rows)
        all_s, values = self._timed(sample.rows)
        more = len(sample.rows.row_id_N) - len(few.rows.row_id_N)
        self.row_s = max(all_s - few_s, 0.2 * all_s) / more if more > 0 else all_s / len(values)
        self.call_s = max(few_s - len(few.rows.row_id_N) * self.row_s, 0.0)
        return primary_value(self.schema.task, sample.rows.label_N, values, sample.weight_N)

    def seconds(self, copies: int, rows: int) -> float:
        """The time that so many copies of so many rows will take, about."""
        calls = -(-copies // self.copies_in_call(rows))
        return calls * self.call_s + copies * rows * self.row_s

    def copies_in_call(self, rows: int) -> int:
        """How many copies of so many rows one call takes."""
        in_time_s = max(_CALL_S - self.call_s, self.call_s * _LEAST_SHARE / (1 - _LEAST_SHARE))
        width = len(self.schema.features) + self.schema.num_outputs
        most = min(in_time_s / max(self.row_s, 1e-9), _MOST_VALUES / width)
        return max(1, int(most / rows))

    def drops(self, sample: Sample, order: Shuffle, round_: int) -> Iterator[Drop]:
        """What each group's shuffle costs in one round, as long as there is time."""
        task, metric = self.schema.task, primary(self.schema.task)
        kept = sample.first(order.rows)
        rows, size = kept.rows, len(kept.rows.row_id_N)
        whole = primary_value(task, rows.label_N, self.predict(rows), kept.weight_N)
        if whole is None:
            return
        step = self.copies_in_call(size)
        for begin in range(0, len(order.groups), step):
            groups = order.groups[begin : begin + step]
            if time.time() + self.seconds(len(groups), size) > order.until:
                return
            copies = joined([rows] * len(groups))
            for place, group in enumerate(groups):
                own = slice(place * size, (place + 1) * size)
                # The same for every model, whichever process it is in.
                order_N = np.random.default_rng((order.seed, round_, begin + place)).permutation(size)
                for number in group.numeric:
                    copies.numeric_NF[own, number] = rows.numeric_NF[order_N, number]
                for code in group.codes:
                    copies.codes_NK[own, code] = rows.codes_NK[order_N, code]
            for place, values in enumerate(np.split(self.predict(copies), len(groups))):
                found = primary_value(task, rows.label_N, values, kept.weight_N)
                assert found is not None  # the labels are the same
                drop = score(metric, whole) - score(metric, found)
                yield Drop(model=self.name, group=begin + place, drop=drop)

    def curve(self, sample: Sample, order: Draw, number: int) -> Curve | None:
        """The mean predictions along one grid; None if there is no time for it."""
        kept, grid = sample.first(order.rows), order.grids[number]
        size = len(kept.rows.row_id_N)
        if time.time() + self.seconds(grid.points, size) > order.until:
            return None
        step = self.copies_in_call(size)
        means = [
            mean_G
            for begin in range(0, grid.points, step)
            for mean_G in self._means(kept, grid, range(begin, min(begin + step, grid.points)))
        ]
        return Curve(model=self.name, grid=number, mean_PG=np.stack(means))

    def _means(self, kept: Sample, grid: Grid, points: Sequence[int]) -> list[NDArray[np.float64]]:
        size = len(kept.rows.row_id_N)
        copies = joined([kept.rows] * len(points))
        for place, value_P in grid.numeric:
            copies.numeric_NF[:, place] = np.repeat(value_P[points[0] : points[-1] + 1], size)
        for place, code_P in grid.codes:
            copies.codes_NK[:, place] = np.repeat(code_P[points[0] : points[-1] + 1], size)
        parts = np.split(self.predict(copies), len(points))
        return [
            np.atleast_1d(np.asarray(np.average(values, axis=0, weights=kept.weight_N))) for values in parts
        ]

    def _timed(self, rows: Rows) -> tuple[float, NDArray[np.float64]]:
        start = time.perf_counter()
        values = self.predict(rows)
        return time.perf_counter() - start, values
