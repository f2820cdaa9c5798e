"""The table on the device: prepared once, kept there, and cut into batches there.

There is no DataLoader: its workers and copies cost several times the arithmetic of a small network. Limit:
the table has to fit the device.

N rows, B of a batch, F raw and G prepared numeric columns, K categorical columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

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

    def chunks(self, rows: int) -> Iterator[ResidentRows]:
        """The rows in order, in views of `rows` rows each."""
        for begin in range(0, len(self), rows):
            part = slice(begin, begin + rows)
            yield ResidentRows(
                numeric_NG=self.numeric_NG[part],
                codes_NK=self.codes_NK[part],
                target_N=self.target_N[part],
                weight_N=None if self.weight_N is None else self.weight_N[part],
            )


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


def epoch_batches(rows: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Every row once, in an order drawn on the generator's device; the last batch holds what is left."""
    order_N = torch.randperm(rows, generator=generator, device=generator.device)
    yield from torch.split(order_N, batch_size)
