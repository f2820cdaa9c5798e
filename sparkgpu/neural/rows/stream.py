"""Training rows that stay in the table's files: each epoch reads, shuffles and prepares them again.

A pool of rows is filled from blocks of several row groups, shuffled and cut into batches, while a thread
fills the next ones. The rest of a pool goes into the next one, so only the last batch of an epoch is smaller.
Ranks that compute parts of each batch read parts of the table, others in each epoch: each row once by one
rank. Labels and weights, a few bytes per row, are read once to fit the objective. Limit: the rows of a batch
come from one pool of each rank, not from the whole table; so with other ranks the network is another one.

P rows of a pool, S rows of a sample, F numeric features.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from sparkgpu.core.table.rows import RowGroups, Rows, pages
from sparkgpu.neural.nets.dropout import derived_seed
from sparkgpu.neural.preprocess import NumericTransform
from sparkgpu.neural.rows.resident import ResidentRows, raw_rows, sent
from sparkgpu.neural.training.objective import Objective

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
        with_ids: bool = False,
    ) -> None:
        self._groups = groups
        self._rows = rows
        self._transform = transform
        self._objective = objective
        self._mean_weight = mean_weight
        self._pool_rows = pool_rows
        self._with_ids = with_ids
        self._device = device

    def __len__(self) -> int:
        return self._rows

    def batches(
        self,
        *,
        seed: int,
        epoch: int,
        batch_size: int,
        first: int,
        part: Callable[[int], slice],
        into: Callable[[], ResidentRows | None] = lambda: None,
    ) -> Iterator[tuple[ResidentRows, int]]:
        rest: ResidentRows | None = None
        batch = passed = 0
        random = np.random.default_rng(derived_seed(seed, epoch))  # not in the thread: the first call imports
        whole, more = divmod(self._rows, batch_size)
        own, own_more = (range(*part(rows).indices(rows)) for rows in (batch_size, more))
        own_rows = whole * len(own) + len(own_more)
        groups = self._groups
        if own_rows < self._rows:
            begin = whole * own.start + own_more.start
            groups = groups.share(begin, begin + own_rows, random)
        read = map(self._ready, pages(groups.blocks(random), self._pool_rows))
        for number, rows in enumerate(_read_ahead(read)):
            fresh = rows if self._device.type == "cpu" else rows.to(self._device).prepared(self._transform)
            generator = torch.Generator().manual_seed(derived_seed(seed, epoch, number))
            pool = fresh if rest is None else rest.followed_by(fresh)
            is_last = passed + len(pool) >= own_rows
            order_P = sent(torch.randperm(len(pool), generator=generator), self._device)
            end = len(pool) if is_last else len(pool) // len(own) * len(own)
            for index_B in torch.split(order_P[:end], len(own)):
                if batch >= first:
                    yield pool.take(index_B, into()), batch_size if batch < whole else more
                batch += 1
            passed += end
            if is_last and batch < whole + (more > 0):  # others have rows of the last batch
                yield pool.take(order_P[:0]), more
            rest = pool.take(order_P[end:]) if end < len(pool) else None

    def _ready(self, rows: Rows) -> ResidentRows:
        """In the thread: prepared for a CPU, or raw in pinned memory for a GPU, which prepares it."""
        raw = raw_rows(rows, self._objective, mean_weight=self._mean_weight, with_ids=self._with_ids)
        return raw.prepared(self._transform) if self._device.type == "cpu" else raw.pinned()


def _read_ahead(read: Iterator[ResidentRows]) -> Iterator[ResidentRows]:
    """The same pools, each of which a thread reads while the ones before it are used."""
    reader = ThreadPoolExecutor(1)
    try:
        waiting = deque(reader.submit(next, read, None) for _ in range(_AHEAD))
        while (pool := waiting.popleft().result()) is not None:
            waiting.append(reader.submit(next, read, None))
            yield pool
    finally:
        reader.shutdown(cancel_futures=True)
