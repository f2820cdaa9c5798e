"""Asks models about changed rows, in the processes that hold them: one command after the other.

Many changes go into one call, since a call has a price of its own. Trees and networks live in different
processes: their libraries take seconds to import and bring threads of their own. So nothing heavy is imported
before such a process has started. Answers go out as soon as they are known, so that what is done stands when
the time is over.

N rows, P points of a grid or changed copies of the rows, G classes or 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.host.interpreter import importing
from sparkgpu.core.table.rows import Rows, joined
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.predict.explain.columns import Places
from sparkgpu.predict.explain.sample import Sample
from sparkgpu.score.calibration import scaled
from sparkgpu.score.metrics import primary, primary_value, score

if TYPE_CHECKING:
    from sparkgpu.trials.engine import Model

_CALL_S = 0.3  # a call shall take: short, so that the time limit holds
_LEAST_SHARE = 0.75  # of a call's time for its rows, where they are what costs
_MOST_VALUES = 8_000_000  # in the copies of a call: 32 MB
_TIMED_ROWS = 100


@dataclass(frozen=True, kw_only=True)
class Member:
    """A trial whose model is to be loaded, under the name of its model."""

    name: str
    engine: str
    folder: Path
    temperature: float | None


class Loaded(NamedTuple):
    """A model answers: its metric on the sample, its natural value, and the seconds for a call and a row."""

    value: float | None
    call_s: float
    row_s: float


class Answer(NamedTuple):
    """What one model says to a part of a command; to loading, `Loaded` or why it cannot be asked."""

    model: str
    place: int
    value: Any


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

    def ask_first(self, sample: Sample) -> Loaded:
        """Measure the metric on the sample, and the time of a call and of a row."""
        few = sample.first(_TIMED_ROWS)
        self.predict(few.rows)  # libraries set themselves up in their first call
        few_s, _ = self._timed(few.rows)
        all_s, values = self._timed(sample.rows)
        more = len(sample) - len(few)
        self.row_s = max(all_s - few_s, 0.2 * all_s) / more if more > 0 else all_s / len(values)
        self.call_s = max(few_s - len(few) * self.row_s, 0.0)
        return Loaded(self._metric(sample, values), self.call_s, self.row_s)

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

    def drops(
        self, kept: Sample, groups: Sequence[Places], seed: tuple[int, int], until: float
    ) -> Iterator[Answer]:
        """What each group's shuffle costs, as long as there is time."""
        metric, rows, size = primary(self.schema.task), kept.rows, len(kept)
        whole = self._metric(kept, self.predict(rows))
        step = self.copies_in_call(size)
        for begin in range(0, len(groups), step):
            own_groups = groups[begin : begin + step]
            if whole is None or time.time() + self.seconds(len(own_groups), size) > until:
                return
            copies = joined([rows] * len(own_groups))
            for place, group in enumerate(own_groups):
                own = slice(place * size, (place + 1) * size)
                # The same for every model, whichever process it is in.
                order_N = np.random.default_rng((*seed, begin + place)).permutation(size)
                for number in group.numeric:
                    copies.numeric_NF[own, number] = rows.numeric_NF[order_N, number]
                for code in group.codes:
                    copies.codes_NK[own, code] = rows.codes_NK[order_N, code]
            for place, values in enumerate(np.split(self.predict(copies), len(own_groups))):
                found = self._metric(kept, values)
                assert found is not None  # the labels are the same
                yield Answer(self.name, begin + place, score(metric, whole) - score(metric, found))

    def curve(self, kept: Sample, grid: Grid) -> NDArray[np.float64]:
        """The mean predictions along the grid, (P, G)."""
        points, size, means = len(grid.at), len(kept), []
        step = self.copies_in_call(size)
        for begin in range(0, points, step):
            own = slice(begin, min(begin + step, points))
            copies = joined([kept.rows] * (own.stop - begin))
            for place, value_P in grid.numeric:
                copies.numeric_NF[:, place] = np.repeat(value_P[own], size)
            for place, code_P in grid.codes:
                copies.codes_NK[:, place] = np.repeat(code_P[own], size)
            for values in np.split(self.predict(copies), own.stop - begin):
                means.append(np.atleast_1d(np.average(values, axis=0, weights=kept.weight_N)))
        return np.stack(means)

    def _metric(self, sample: Sample, values: NDArray[np.float64]) -> float | None:
        return primary_value(self.schema.task, sample.rows.label_N, values, sample.weight_N)

    def _timed(self, rows: Rows) -> tuple[float, NDArray[np.float64]]:
        start = time.perf_counter()
        values = self.predict(rows)
        return time.perf_counter() - start, values


def shuffled(
    models: Sequence[Asked],
    sample: Sample,
    *,
    groups: Sequence[Places],
    rows: int,
    rounds: int,
    seed: int,
    until: float,
) -> Iterator[Answer]:
    """By how much each model's score is lower with each group shuffled; the first `rows` rows are asked.

    Round by round, so that the models of one process share its time. Nothing begins that would not be done at
    `until`.
    """
    for round_ in range(rounds):
        for model in models:
            yield from model.drops(sample.first(rows), groups, (seed, round_), until)


def drawn(
    models: Sequence[Asked], sample: Sample, *, grids: Sequence[Grid], rows: int, until: float
) -> Iterator[Answer]:
    """What the models predict on average at the points of each grid (P, G); the leading feature first."""
    for number, grid in enumerate(grids):
        for model in models:
            if time.time() + model.seconds(len(grid.at), rows) <= until:
                yield Answer(model.name, number, model.curve(sample.first(rows), grid))


Command = Callable[[Sequence[Asked], Sample], Iterator[Answer]]
"""One of these two functions with its other arguments."""


def serve(line: Connection[Any, Any], members: Sequence[Member], schema: TableSchema) -> None:
    """Load models, take the sample, then carry out what comes in; None says that a command is done."""
    from sparkgpu.core.errors import described

    def refuse(name: str, error: Exception) -> None:
        line.send(Answer(name, 0, described(error)["message"]))

    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        loaded: list[Asked] = []
        with importing():
            from sparkgpu.trials.engine import load_fitted

            for one in members:
                try:
                    model = load_fitted(one.engine, one.folder, schema)
                    loaded.append(
                        Asked(name=one.name, model=model, temperature=one.temperature, schema=schema)
                    )
                except Exception as error:  # whatever is wrong with one file, the others can be asked
                    refuse(one.name, error)
        sample, models = line.recv(), []
        for asked in loaded:
            try:
                line.send(Answer(asked.name, 0, asked.ask_first(sample)))
                models.append(asked)
            except Exception as error:
                refuse(asked.name, error)
        line.send(None)
        while True:
            command: Command = line.recv()
            for answer in command(models, sample):
                line.send(answer)
            line.send(None)
