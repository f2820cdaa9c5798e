"""The models of a run in processes of their own: started, asked until a time, and ended.

A process that does not answer in time, or that dies, loses its models and nothing else.

P points of a grid, G classes or 1.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from sparkgpu.core.config.registry.engines import branch_of
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.predict.explain.asking import Answer, Command, Grid, Loaded, Member, drawn, serve, shuffled
from sparkgpu.predict.explain.columns import Places
from sparkgpu.predict.explain.sample import Sample
from sparkgpu.score.rows import FloatArray

_LEAST_PROCESSES = 2  # one for trees, one for networks: each imports for seconds
_WITH_CALL = 4 / 3  # a call has so many rows that they take three parts of its time

Line: TypeAlias = "Connection[Any, Any]"


class Models:
    """The models that still answer; they are asked until `until`, in seconds since the epoch.

    `loaded` are the models that answer, `refused` those that cannot be asked (any more), and why. `notes` are
    for the report.
    """

    def __init__(
        self, started: dict[Line, tuple[BaseProcess, list[str]]], schema: TableSchema, seed: int, until: float
    ) -> None:
        self._started = started
        self._lines = set(started)
        self.schema, self.seed, self.until = schema, seed, until
        self.loaded: dict[str, Loaded] = {}
        self.refused: dict[str, str] = {}
        self.notes: list[str] = []

    def load(self, sample: Sample, by: float) -> None:
        """Wait until all models have answered for the `sample`, or until `by`."""
        self.sample = sample
        for model, _, found in self._ask(sample, by):
            if isinstance(found, Loaded):
                self.loaded[model] = found
            else:
                self.refused[model] = found

    def row_s(self) -> float:
        """The seconds for a row in all models with its part of a call, as if one process held them."""
        return _WITH_CALL * sum(one.row_s for one in self.loaded.values())

    def shuffled(
        self, groups: Sequence[Places], rows: int, rounds: int, until: float
    ) -> dict[str, dict[int, list[float]]]:
        """By model and group: what each shuffle costs."""
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        order = partial(shuffled, groups=groups, rows=rows, rounds=rounds, seed=self.seed, until=until)
        for model, group, drop in self._ask(order, self.until):
            found[model][group].append(drop)
        return found

    def drawn(self, grids: Sequence[Grid], rows: int) -> dict[int, dict[str, FloatArray]]:
        """By grid and model: mean predictions (P, G)."""
        found: dict[int, dict[str, FloatArray]] = defaultdict(dict)
        order = partial(drawn, grids=grids, rows=rows, until=self.until)
        for model, number, mean_PG in self._ask(order, self.until):
            found[number][model] = mean_PG
        return found

    def _ask(self, command: Command | Sample, until: float) -> Iterator[Answer]:
        """Send a command to all, and yield answers until all are ready or, at `until`, ended."""
        for line in list(self._lines):
            try:
                line.send(command)
            except (BrokenPipeError, ConnectionResetError):
                self._lose(line, "its process ended")
        busy = set(self._lines)
        while busy:
            found = wait(list(busy), timeout=max(until - time.time(), 0.0))
            if not found:
                for line in busy:
                    self._lose(line, "the time was over")
                return
            for line in busy & set(found):
                try:
                    answer = line.recv()
                except (EOFError, ConnectionResetError):
                    self._lose(line, "its process ended")
                    answer = None
                if answer is None:
                    busy.discard(line)
                else:
                    yield answer

    def _lose(self, line: Line, why: str) -> None:
        process, names = self._started[line]
        process.kill()
        self._lines.discard(line)
        self.refused = {**dict.fromkeys(names, why), **self.refused}


@contextmanager
def started(
    members: Sequence[Member], schema: TableSchema, *, cores: int, seed: int, until: float
) -> Iterator[Models]:
    """Processes that load the models of `members` while the caller goes on: one each, or for each branch."""
    several = len(members) <= max(cores, _LEAST_PROCESSES)
    shares: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        shares[member.name if several else branch_of(member.engine)].append(member)
    # Read by torch, xgboost and lightgbm when they are imported.
    os.environ["OMP_NUM_THREADS"] = str(max(1, cores // max(1, len(shares))))
    context = multiprocessing.get_context("spawn")
    found: dict[Line, tuple[BaseProcess, list[str]]] = {}
    try:
        for share in shares.values():
            own, line = context.Pipe()
            process = context.Process(target=serve, args=(line, share, schema), daemon=True)
            process.start()
            line.close()
            found[own] = process, [member.name for member in share]
        yield Models(found, schema, seed, until)
    finally:  # at once: they hold nothing that is not known
        for one, _ in found.values():
            one.kill()
        for one, _ in found.values():
            one.join()
