"""Training rows that stay in the table's files: each epoch reads, shuffles and prepares them again.

A pool of rows is filled from blocks of several row groups, shuffled and cut into batches, while a thread
fills the next pool. The rest of a pool goes into the next one, so only the last batch of an epoch is smaller.
Labels and weights, a few bytes per row, are read once to fit the objective. Limit: the rows of a batch come
from one pool, not from the whole table.

P rows of a pool, S rows of a sample, F numeric features.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparkgpu.engines.neural.nets.dropout import derived_seed
from sparkgpu.engines.neural.preprocess import NumericTransform
from sparkgpu.engines.neural.rows.resident import ResidentRows, raw_rows
from sparkgpu.engines.neural.training.objective import Objective
from sparkgpu.table.row_groups import RowGroups
from sparkgpu.table.rows import Rows

_AHEAD = 2  # pools that wait, so that the next one is ready when one is used up


class StreamedSource:
    """Rows of a split: about `pool_rows` at a time are in memory, and on `device` when they are used."""

    def __init__(
        self,
        groups: RowGroups,
        rows: int,
        *,
        transform: NumericTransform,
        objective: Objective,
        mean_weight: float,
        pool_rows: int,
        device: torch.device,
    ) -> None:
        self._groups = groups
        self._rows = rows
        self._transform = transform
        self._objective = objective
        self._mean_weight = mean_weight
        self._pool_rows = pool_rows
        self._device = device

    def __len__(self) -> int:
        return self._rows

    def batches(
        self, *, seed: int, epoch: int, batch_size: int, first: int, part: Callable[[int], slice]
    ) -> Iterator[tuple[ResidentRows, int]]:
        rest: ResidentRows | None = None
        passed = 0
        for number, fresh in enumerate(self._pools(seed, epoch)):
            generator = torch.Generator().manual_seed(derived_seed(seed, epoch, number))
            pool = fresh if rest is None else rest.followed_by(fresh)
            is_last = passed + len(pool) >= self._rows
            order_P = torch.randperm(len(pool), generator=generator).to(self._device)
            end = len(pool) if is_last else len(pool) // batch_size * batch_size
            for index_B in torch.split(order_P[:end], batch_size):
                if passed // batch_size >= first:
                    yield pool.take(index_B[part(len(index_B))]), len(index_B)
                passed += len(index_B)
            rest = pool.take(order_P[end:]) if end < len(pool) else None

    def _pools(self, seed: int, epoch: int) -> Iterator[ResidentRows]:
        """Prepared pools from a thread that ends with this generator."""
        ready: queue.Queue[ResidentRows | BaseException | None] = queue.Queue(_AHEAD)
        stopped = threading.Event()

        random = np.random.default_rng(derived_seed(seed, epoch))  # not in the thread: the first call imports

        def put(item: ResidentRows | BaseException | None) -> None:
            while not stopped.is_set():
                with suppress(queue.Full):
                    ready.put(item, timeout=0.1)
                    break

        def fill() -> None:
            try:
                for rows in joined(self._groups.blocks(random), self._pool_rows):
                    put(self._begun(rows))
                put(None)
            except BaseException as error:
                put(error)

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        try:
            while (item := ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield self._finished(item)
        finally:
            stopped.set()
            thread.join()

    def _begun(self, rows: Rows) -> ResidentRows:
        """In the thread: prepared for a CPU step, or raw in pinned memory for a GPU."""
        raw = raw_rows(rows, self._objective, mean_weight=self._mean_weight)
        return raw.pinned() if self._device.type == "cuda" else raw.prepared(self._transform)

    def _finished(self, rows: ResidentRows) -> ResidentRows:
        """At the step: move to the device, and prepare there if it is a GPU."""
        return rows.to(self._device).prepared(self._transform) if self._device.type == "cuda" else rows


def joined(blocks: Iterator[Rows], most: int) -> Iterator[Rows]:
    """Blocks joined until they hold at least `most` rows; the last may hold fewer."""
    waiting: list[Rows] = []
    for block in blocks:
        waiting.append(block)
        if sum(len(rows.row_id_N) for rows in waiting) >= most:
            yield _concatenated(waiting)
            waiting = []
    if waiting:
        yield _concatenated(waiting)


def _concatenated(parts: list[Rows]) -> Rows:
    def together(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    return Rows(
        row_id_N=together("row_id_N"),
        label_N=together("label_N"),
        weight_N=None if parts[0].weight_N is None else together("weight_N"),
        numeric_NF=together("numeric_NF"),
        codes_NK=together("codes_NK"),
    )


def fit_transform(
    kind: type[NumericTransform], groups: RowGroups, rows: int, *, generator: torch.Generator
) -> NumericTransform:
    """The numeric transform, fitted block by block on the same sample as for the whole table."""
    blocks: Iterator[Tensor] = (torch.from_numpy(block.numeric_NF) for block in groups.blocks())
    return kind.fit_blocks(blocks, rows, generator=generator)
