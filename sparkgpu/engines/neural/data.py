"""The table on the device: prepared once, kept there, and cut into batches there.

There is no DataLoader: its workers and copies cost several times the arithmetic of a small network. Limit:
the table has to fit the device.

N rows, B of a batch, F raw and G prepared numeric columns, K categorical columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sparkgpu.engines.neural.nets.dropout import derived_seed
from sparkgpu.engines.neural.objective import Objective
from sparkgpu.engines.neural.preprocess import QuantileNormal
from sparkgpu.table import Rows


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

    def weighted(self, loss_N: Tensor) -> Tensor:
        """Losses of these rows times their weights, where they have some."""
        return loss_N if self.weight_N is None else loss_N * self.weight_N


def raw_tensors(rows: Rows, device: torch.device) -> tuple[Tensor, Tensor]:
    """Raw numbers (N, F) and codes (N, K) on the device; on the CPU they share the arrays' memory."""
    return torch.from_numpy(rows.numeric_NF).to(device), torch.from_numpy(rows.codes_NK).to(device)


def make_resident(
    rows: Rows, raw_NF: Tensor, codes_NK: Tensor, transform: QuantileNormal, objective: Objective
) -> ResidentRows:
    """Prepare rows for training: the numeric transform is applied here, once, and may overwrite `raw_NF`."""
    device = raw_NF.device
    weight_N = None
    if rows.weight_N is not None and rows.weight_N.any():
        weight_N = torch.from_numpy(rows.weight_N / rows.weight_N.mean(dtype="float64")).float().to(device)
    return ResidentRows(
        numeric_NG=transform.transform(raw_NF, in_place=True),
        codes_NK=codes_NK,
        target_N=objective.targets(rows.label_N).to(device),
        weight_N=weight_N,
    )


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


@dataclass(frozen=True, kw_only=True)
class ResidentSource:
    """Rows that lie on the device: batches are gathered there by a permutation drawn there."""

    rows: ResidentRows

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, *, seed: int, epoch: int, batch_size: int, first: int, part: Callable[[int], slice]
    ) -> Iterator[tuple[ResidentRows, int]]:
        device = self.rows.target_N.device
        generator = torch.Generator(device).manual_seed(derived_seed(seed, epoch))
        order_N = torch.randperm(len(self.rows), generator=generator, device=device)
        for index_B in torch.split(order_N, batch_size)[first:]:
            yield self.rows.take(index_B[part(len(index_B))]), len(index_B)
