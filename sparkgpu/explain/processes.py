"""The processes that hold the models: started, asked, and ended when the time is over.

A process that does not answer in time, or that dies, loses its models and nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from sparkgpu.config.registry.engines import branch_of
from sparkgpu.explain.messages import Answer, Command, Member, Order, Ready
from sparkgpu.explain.worker import serve
from sparkgpu.table.schema import TableSchema

_LEAST_PROCESSES = 2  # one for trees, one for networks: each imports for seconds


class Processes:
    """The processes that still answer; `names` are the models that each of them holds."""

    def __init__(self, started: Sequence[tuple[BaseProcess, Connection[Any, Any], tuple[str, ...]]]) -> None:
        self._names = {line: names for _, line, names in started}
        self._process = {line: process for process, line, _ in started}
        self.lost: dict[str, str] = {}
        """Models that can no longer be asked, and why."""

    def ask(self, command: Command, until: float) -> Iterator[Answer]:
        """Send a command to all, and yield answers until all are ready.

        Processes that are not ready at `until`, seconds since the epoch, are ended.
        """
        for line in list(self._names):
            try:
                line.send(command)
            except (BrokenPipeError, ConnectionResetError):
                self._lose(line, "its process ended")
        busy = set(self._names)
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
                    busy.discard(line)
                    continue
                if isinstance(answer, Ready):
                    busy.discard(line)
                else:
                    yield answer

    def end(self) -> None:
        """End all processes now: they hold nothing that is not known."""
        for process in self._process.values():
            process.kill()
        for process in self._process.values():
            process.join()

    def _lose(self, line: Connection[Any, Any], why: str) -> None:
        self._process[line].kill()
        self.lost |= dict.fromkeys(self._names.pop(line), why)


@contextmanager
def started(members: Sequence[Member], schema: TableSchema, cores: int) -> Iterator[Processes]:
    """Processes with the models of `members`, which they load while the caller goes on."""
    shares = _shares(members, max(cores, _LEAST_PROCESSES))
    # Read by torch, xgboost and lightgbm when they are imported.
    os.environ["OMP_NUM_THREADS"] = str(max(1, cores // len(shares)))
    context = multiprocessing.get_context("spawn")
    found = []
    for share in shares:
        own, line = context.Pipe()
        process = context.Process(target=serve, args=(line, Order(members=share, schema=schema)), daemon=True)
        process.start()
        line.close()
        found.append((process, own, tuple(member.name for member in share)))
    processes = Processes(found)
    try:
        yield processes
    finally:
        processes.end()


def _shares(members: Sequence[Member], most: int) -> list[tuple[Member, ...]]:
    """A process for each model, or for each branch if that would be too many."""
    if len(members) <= most:
        return [(member,) for member in members]
    branches = [branch_of(member.engine) for member in members]
    return [
        tuple(member for member, own in zip(members, branches, strict=True) if own == branch)
        for branch in dict.fromkeys(branches)
    ]
