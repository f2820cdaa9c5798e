"""The table on the device: prepared once, kept there, and cut into batches there.

There is no DataLoader: its workers and copies cost several times the arithmetic of a small network. Limit:
the table has to fit the device.

N rows, B of a batch, F raw and G prepared numeric columns, K categorical columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparkgpu.engines.neural.nets.dropout import derived_seed
from sparkgpu.engines.neural.preprocess import NumericTransform
from sparkgpu.engines.neural.training.objective import Objective
from sparkgpu.table.rows import Rows


@dataclass(frozen=True, kw_only=True)
class ResidentRows:
    """Prepared rows on one device; weights have a mean of 1, or are absent."""

    numeric_NG: Tensor
    codes_NK: Tensor
    target_N: Tensor
    weight_N: Tensor | None

    def __len__(self) -> int:
        return len(self.target_N)

    def take(self, index_B: Tensor) -> ResidentRows:
        return ResidentRows(
            numeric_NG=self.numeric_NG.index_select(0, index_B),
            codes_NK=self.codes_NK.index_select(0, index_B) if self.codes_NK.shape[1] else self.codes_NK,
            target_N=self.target_N.index_select(0, index_B),
            weight_N=None if self.weight_N is None else self.weight_N.index_select(0, index_B),
        )

    def part(self, rows: slice) -> ResidentRows:
        """Some consecutive rows, as views."""
        return ResidentRows(
            numeric_NG=self.numeric_NG[rows],
            codes_NK=self.codes_NK[rows],
            target_N=self.target_N[rows],
            weight_N=None if self.weight_N is None else self.weight_N[rows],
        )

    def _each(self, change: Callable[[Tensor], Tensor]) -> ResidentRows:
        return ResidentRows(
            numeric_NG=change(self.numeric_NG),
            codes_NK=change(self.codes_NK),
            target_N=change(self.target_N),
            weight_N=None if self.weight_N is None else change(self.weight_N),
        )

    def to(self, device: torch.device) -> ResidentRows:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> ResidentRows:
        """In memory that a GPU copies from while it computes."""
        return self._each(torch.Tensor.pin_memory)

    def prepared(self, transform: NumericTransform) -> ResidentRows:
        """With raw numbers transformed, in their own memory where they fit."""
        return replace(self, numeric_NG=transform.transform(self.numeric_NG, in_place=True))

    def followed_by(self, other: ResidentRows) -> ResidentRows:
        assert (self.weight_N is None) == (other.weight_N is None)
        return ResidentRows(
            numeric_NG=torch.cat([self.numeric_NG, other.numeric_NG]),
            codes_NK=torch.cat([self.codes_NK, other.codes_NK]),
            target_N=torch.cat([self.target_N, other.target_N]),
            weight_N=None
            if self.weight_N is None or other.weight_N is None
            else torch.cat([self.weight_N, other.weight_N]),
        )

    def weighted(self, loss_N: Tensor) -> Tensor:
        """Losses of these rows times their weights, where they have some."""
        return loss_N if self.weight_N is None else loss_N * self.weight_N


def raw_tensors(rows: Rows, device: torch.device) -> tuple[Tensor, Tensor]:
    """Raw numbers (N, F) and codes (N, K) on the device; on the CPU they share the arrays' memory."""
    return torch.from_numpy(rows.numeric_NF).to(device), torch.from_numpy(rows.codes_NK).to(device)


def raw_rows(rows: Rows, objective: Objective, *, mean_weight: float) -> ResidentRows:
    """Rows on the CPU as the loss takes them, their numbers still raw."""
    weight_N = None
    if rows.weight_N is not None and mean_weight > 0:
        weight_N = torch.from_numpy(rows.weight_N / mean_weight).float()
    return ResidentRows(
        numeric_NG=torch.from_numpy(rows.numeric_NF),
        codes_NK=torch.from_numpy(rows.codes_NK),
        target_N=objective.targets(rows.label_N),
        weight_N=weight_N,
    )


def mean_weight(weight_N: NDArray[np.float32] | None) -> float:
    """What weights are divided by; 0 where there are none that count."""
    return float(weight_N.mean(dtype="float64")) if weight_N is not None and weight_N.any() else 0.0


class Source(Protocol):
    """Training rows, wherever they lie: an epoch of them, cut into batches, in an order of its own."""

    def __len__(self) -> int: ...

    def batches(
        self, *, seed: int, epoch: int, batch_size: int, first: int, part: Callable[[int], slice]
    ) -> Iterator[tuple[ResidentRows, int]]:
        """From batch number `first` on: the rows that `part` takes of each batch, and the whole batch's size.

        The order follows from seed and epoch alone, so that a restart and every rank see the same batches.
        """
        ...


def row_order(rows: int, *, seed: int, epoch: int, device: torch.device) -> Tensor:
    """Every row once (N,), in an order drawn on `device` from seed and epoch alone."""
    generator = torch.Generator(device).manual_seed(derived_seed(seed, epoch))
    return torch.randperm(rows, generator=generator, device=device)


@dataclass(frozen=True, kw_only=True)
class ResidentSource:
    """Rows that lie on the device: batches are gathered there by a permutation drawn there."""

    rows: ResidentRows

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, *, seed: int, epoch: int, batch_size: int, first: int, part: Callable[[int], slice]
    ) -> Iterator[tuple[ResidentRows, int]]:
        order_N = row_order(len(self), seed=seed, epoch=epoch, device=self.rows.target_N.device)
        for index_B in torch.split(order_N, batch_size)[first:]:
            yield self.rows.take(index_B[part(len(index_B))]), len(index_B)
