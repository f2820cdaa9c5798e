"""Training rows that stay in the table's files: each epoch reads, shuffles and prepares them again.

A pool of rows is filled from blocks of several row groups, shuffled and cut into batches, while a thread
fills the next pools, the first of which is on its way to a GPU (`upload`). The rest of a pool goes into the
next one, so only the last batch of an epoch is smaller. Labels and weights, a few bytes per row, are read
once to fit the objective. Limit: the rows of a batch come from one pool, not from the whole table.

P rows of a pool, S rows of a sample, F numeric features.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sparkgpu.core.table.row_groups import RowGroups
from sparkgpu.core.table.rows import Rows, joined
from sparkgpu.neural.nets.dropout import derived_seed
from sparkgpu.neural.preprocess import NumericTransform
from sparkgpu.neural.rows.resident import ResidentRows, raw_rows, sent
from sparkgpu.neural.rows.upload import Coming, Upload
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
        upload: Upload | None = None,
    ) -> None:
        """`upload` brings pools to a GPU; on a CPU there is none."""
        self._groups = groups
        self._rows = rows
        self._transform = transform
        self._objective = objective
        self._mean_weight = mean_weight
        self._pool_rows = pool_rows
        self._device = device
        self._upload = upload

    def __len__(self) -> int:
        return self._rows

    def batches(
        self, *, seed: int, epoch: int, batch_size: int, first: int, part: Callable[[int], slice]
    ) -> Iterator[tuple[ResidentRows, int]]:
        rest: ResidentRows | None = None
        passed = 0
        random = np.random.default_rng(derived_seed(seed, epoch))  # not in the thread: the first call imports
        read = pools(self._groups.blocks(random), self._pool_rows)
        with _Pools((self._begun(rows) for rows in read), self._upload) as filled:
            for number in itertools.count():
                fresh = filled.next()
                if fresh is None:
                    return
                if self._upload is not None:
                    fresh = fresh.prepared(self._transform)
                generator = torch.Generator().manual_seed(derived_seed(seed, epoch, number))
                pool = fresh if rest is None else rest.followed_by(fresh)
                is_last = passed + len(pool) >= self._rows
                order_P = sent(torch.randperm(len(pool), generator=generator), self._device)
                end = len(pool) if is_last else len(pool) // batch_size * batch_size
                for index_B in torch.split(order_P[:end], batch_size):
                    if passed // batch_size >= first:
                        yield pool.take(index_B[part(len(index_B))]), len(index_B)
                    passed += len(index_B)
                    filled.look_ahead()
                rest = pool.take(order_P[end:]) if end < len(pool) else None

    def _begun(self, rows: Rows) -> ResidentRows:
        """In the thread: prepared for a CPU step, or raw in pinned memory for a GPU, where it is prepared."""
        raw = raw_rows(rows, self._objective, mean_weight=self._mean_weight)
        if self._upload is None:
            return raw.prepared(self._transform)
        return raw.pinned() if self._device.type == "cuda" else raw


class _Pools:
    """The pools of an epoch in their order, filled by a thread that ends with the block."""

    def __init__(self, filled: Iterator[ResidentRows], upload: Upload | None) -> None:
        self._filled = filled
        self._upload = upload
        self._ready: queue.Queue[ResidentRows | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._coming: Coming | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def look_ahead(self) -> None:
        """Begin to copy the next pool to the device, if it has been read and none is on its way."""
        if self._upload is not None and self._coming is None and not self._is_over:
            with suppress(queue.Empty):
                self._begin(self._ready.get_nowait())

    def next(self) -> ResidentRows | None:
        """The next pool on the device, None after the last. Raises what reading it raised."""
        if self._coming is None and not self._is_over:
            self._begin(self._ready.get())
        coming, self._coming = self._coming, None
        if coming is None or self._upload is None:
            return None if coming is None else coming.rows
        return self._upload.finish(coming)

    def _begin(self, found: ResidentRows | BaseException | None) -> None:
        if isinstance(found, BaseException):
            raise found
        if found is None:
            self._is_over = True
        else:
            self._coming = Coming(rows=found) if self._upload is None else self._upload.begin(found)

    def _fill(self) -> None:
        try:
            for rows in self._filled:
                self._put(rows)
                if self._stopped.is_set():
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _put(self, item: ResidentRows | BaseException | None) -> None:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._ready.put(item, timeout=0.1)
                break


def pools(blocks: Iterator[Rows], most: int) -> Iterator[Rows]:
    """Blocks joined until they hold at least `most` rows; the last may hold fewer."""
    waiting: list[Rows] = []
    for block in blocks:
        waiting.append(block)
        if sum(len(rows.row_id_N) for rows in waiting) >= most:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def fit_transform(
    kind: type[NumericTransform], groups: RowGroups, rows: int, *, generator: torch.Generator
) -> NumericTransform:
    """The numeric transform, fitted block by block on the same sample as for the whole table."""
    blocks: Iterator[Tensor] = (torch.from_numpy(block.numeric_NF) for block in groups.blocks())
    return kind.fit_blocks(blocks, rows, generator=generator)
