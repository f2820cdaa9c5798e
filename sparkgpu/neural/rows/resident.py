"""The table on the device: it is prepared once, kept there, and cut into batches there.

A DataLoader's workers and copies would take several times as long as the arithmetic of a small network.
Limit: the table must fit the device.

N rows, B of a batch, F raw and G prepared numeric columns, K categorical columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparkgpu.core.table.rows import Rows
from sparkgpu.neural.nets.dropout import derived_seed
from sparkgpu.neural.preprocess import NumericTransform
from sparkgpu.neural.training.objective import Objective


@dataclass(frozen=True, kw_only=True)
class ResidentRows:
    """Prepared rows on one device. Weights, if any, have a mean of 1. Ids are there for nets that look up."""

    numeric_NG: Tensor
    codes_NK: Tensor
    target_N: Tensor
    weight_N: Tensor | None
    row_id_N: Tensor | None = None

    def __len__(self) -> int:
        return len(self.target_N)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a network gets of them."""
        own = (self.numeric_NG, self.codes_NK)
        return own if self.row_id_N is None else (*own, self.row_id_N)

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors().values())

    def _tensors(self) -> dict[str, Tensor]:
        """Those that there are."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def _each(self, change: Callable[..., Tensor], *others: ResidentRows) -> ResidentRows:
        """The rows of which `change` makes each tensor, from the same tensor here and in `others`."""
        made = {
            name: change(value, *(getattr(other, name) for other in others))
            for name, value in self._tensors().items()
        }
        return replace(self, **made)

    def take(self, index_B: Tensor, into: ResidentRows | None = None) -> ResidentRows:
        """Some of the rows, in the memory of `into` if that has as many."""
        if into is None or len(into) != len(index_B):
            return self._each(lambda tensor: tensor.index_select(0, index_B))
        self._each(lambda tensor, out: torch.index_select(tensor, 0, index_B, out=out), into)
        return into

    def part(self, rows: slice) -> ResidentRows:
        """A slice of consecutive rows, as views."""
        return self._each(lambda tensor: tensor[rows])

    def followed_by(self, other: ResidentRows) -> ResidentRows:
        return self._each(lambda own, others: torch.cat([own, others]), other)

    def copied(self) -> ResidentRows:
        return self._each(torch.Tensor.clone)

    def overwrite(self, rows: ResidentRows) -> None:
        """Write as many other rows of this kind to the memory of these."""
        self._each(torch.Tensor.copy_, rows)

    def rolled(self) -> ResidentRows:
        """Rows with the numbers of these and the targets of their neighbours."""
        return replace(self, target_N=self.target_N.roll(1, dims=0))

    def to(self, device: torch.device) -> ResidentRows:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> ResidentRows:
        """A copy in pinned memory, from which a GPU can copy while it computes."""
        return self._each(torch.Tensor.pin_memory)

    def prepared(self, transform: NumericTransform) -> ResidentRows:
        """The same rows with transformed numbers, in the same memory if they fit."""
        return replace(self, numeric_NG=transform.transform(self.numeric_NG))

    def weighted(self, loss_N: Tensor) -> Tensor:
        return loss_N if self.weight_N is None else loss_N * self.weight_N


def raw_tensors(rows: Rows, device: torch.device) -> tuple[Tensor, Tensor]:
    """Raw numbers (N, F) and codes (N, K) on the device; on the CPU they share the arrays' memory."""
    return torch.from_numpy(rows.numeric_NF).to(device), torch.from_numpy(rows.codes_NK).to(device)


def raw_rows(rows: Rows, objective: Objective, *, mean_weight: float, with_ids: bool = False) -> ResidentRows:
    """Rows on the CPU in the form that the loss takes, with raw numbers."""
    weight_N = None
    if rows.weight_N is not None and mean_weight > 0:
        weight_N = torch.from_numpy(rows.weight_N / mean_weight).float()
    return ResidentRows(
        numeric_NG=torch.from_numpy(rows.numeric_NF),
        codes_NK=torch.from_numpy(rows.codes_NK),
        target_N=objective.targets(rows.label_N),
        weight_N=weight_N,
        row_id_N=torch.from_numpy(rows.row_id_N) if with_ids else None,
    )


def mean_weight(weight_N: NDArray[np.float32] | None) -> float:
    """The mean of the weights, by which they are divided; 0 if there are none."""
    return float(weight_N.mean(dtype="float64")) if weight_N is not None and weight_N.any() else 0.0


def sent(values: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device. A GPU copies it while the host goes on."""
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)


@dataclass(frozen=True, kw_only=True)
class ResidentSource:
    """Training rows on the device, where batches are gathered by a permutation."""

    rows: ResidentRows

    def __len__(self) -> int:
        return len(self.rows)

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
        """For each batch from number `first` on: the rows that `part` selects, and the whole batch's size.

        `into` gives memory in which a whole batch may be made.
        The order depends only on seed and epoch, so a restart and every rank see the same batches. It is
        drawn on the CPU: cards of different kinds draw different orders.
        """
        generator = torch.Generator().manual_seed(derived_seed(seed, epoch))
        order_N = sent(torch.randperm(len(self), generator=generator), self.rows.target_N.device)
        for index_B in torch.split(order_N, batch_size)[first:]:
            yield self.rows.take(index_B[part(len(index_B))], into()), len(index_B)
