"""Training rows that stay in the table's files: each epoch reads, shuffles and prepares them again.

A pool of rows is filled from blocks of several row groups, shuffled and cut into batches, while a thread
fills the next pools, the first of which is on its way to a GPU. The rest of a pool goes into the next one, so
only the last batch of an epoch is smaller. Labels and weights, a few bytes per row, are read once to fit the
objective. Limit: the rows of a batch come from one pool, not from the whole table.

P rows of a pool, S rows of a sample, F numeric features.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sparkgpu.core.table.rows import RowGroups, Rows, joined
from sparkgpu.neural.nets.dropout import derived_seed
from sparkgpu.neural.preprocess import NumericTransform
from sparkgpu.neural.rows.resident import ResidentRows, raw_rows, sent
from sparkgpu.neural.training.objective import Objective

_AHEAD = 2  # pools that wait, so that the next one is ready when one is used up

Coming = tuple[ResidentRows, torch.cuda.Event | None]
"""Rows whose copy has begun, and what tells the device that they are there."""


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
        upload: CudaUpload | None = None,
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


class CudaUpload:
    """Brings pools to a GPU, in two parts.

    The copy runs on a stream of its own, from pinned memory, so neither the host nor the steps wait for it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def begin(self, rows: ResidentRows) -> Coming:
        """Start the copy of rows in pinned memory."""
        with torch.cuda.stream(self._stream):
            there = rows.to(self._device)
        return there, self._stream.record_event()

    def finish(self, coming: Coming) -> ResidentRows:
        """The rows for the steps that follow, which wait on the device until they are there."""
        rows, done = coming
        now = torch.cuda.current_stream(self._device)
        assert done is not None
        now.wait_event(done)
        rows.used_on(now)  # so that their memory is not given away before the steps have read it
        return rows


class _Pools:
    """The pools of an epoch in their order, filled by a thread that ends with the block.

    One pool at a time is on its way to the device.
    """

    def __init__(self, filled: Iterator[ResidentRows], upload: CudaUpload | None) -> None:
        self._filled = filled
        self._upload = upload
        self._reader = ThreadPoolExecutor(1)
        self._read = deque(self._fill() for _ in range(_AHEAD))
        self._coming: Coming | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.shutdown(cancel_futures=True)

    def _fill(self) -> Future[ResidentRows | None]:
        return self._reader.submit(next, self._filled, None)

    def look_ahead(self) -> None:
        """Begin to copy the next pool to the device, if it has been read and none is on its way."""
        if self._upload is not None and self._coming is None and self._read[0].done():
            self._coming = self._begun()

    def next(self) -> ResidentRows | None:
        """The next pool on the device, None after the last. Raises what reading it raised."""
        coming, self._coming = self._coming or self._begun(), None
        if coming is None or self._upload is None:
            return None if coming is None else coming[0]
        return self._upload.finish(coming)

    def _begun(self) -> Coming | None:
        """The next pool, on its way; None after the last."""
        rows = self._read[0].result()
        if rows is None:
            return None
        self._read.popleft()
        self._read.append(self._fill())
        return (rows, None) if self._upload is None else self._upload.begin(rows)


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
