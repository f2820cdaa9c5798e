"""How a network reads a row: numbers on a common scale, and an embedding for each category code.

B rows, G numeric inputs, K categorical columns, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sparkgpu.neural.nets.network import InputShape

_MOST_EMBEDDING_DIM = 8


def embedding_dim(num_levels: int) -> int:
    """The width grows more slowly than the vocabulary (fastai's rule of thumb), up to 8 as in RealMLP.

    Up to 50, the rule's own end, flights overfit (RMSE 39.3 instead of 38.6) and take a third more time.
    """
    return max(1, min(_MOST_EMBEDDING_DIM, round(1.6 * math.pow(num_levels, 0.56))))


class _Table(nn.Embedding):
    """An embedding whose gradient a CPU sums two to four times faster, with the same bits.

    GPUs, whose `index_select` adds gradients in any order, and sharded tensors keep torch's own.
    """

    def forward(self, codes: Tensor) -> Tensor:
        if self.weight.device.type != "cpu" or type(self.weight) is not nn.Parameter:
            return super().forward(codes)
        # torch is slow here with 32-bit indices.
        return self.weight.index_select(0, codes.flatten().long()).view(*codes.shape, -1)


class Columns(nn.Module):
    """Some columns of a matrix (B, D), in the given order: a view if they follow each other, else a copy."""

    def __init__(self, columns: Sequence[int]) -> None:
        super().__init__()
        first = columns[0] if columns else 0
        self.num_outputs = len(columns)
        self._first: int | None = first
        if list(columns) != list(range(first, first + len(columns))):
            self._first = None
            self.register_buffer("chosen", torch.tensor(columns), persistent=False)

    def extra_repr(self) -> str:
        return str(self.num_outputs)

    def forward(self, x_BD: Tensor) -> Tensor:
        if self._first is not None:
            return x_BD.narrow(1, self._first, self.num_outputs)
        return x_BD.index_select(1, self.get_buffer("chosen"))


class CategoryEmbeddings(nn.Module):
    """Codes (B, K) to vectors (B, D): one embedding per column, its first row for missing and unknown.

    Columns with equally wide embeddings share one stacked table, so a step takes a few look-ups instead of
    one per column. `dim` is the width of all embeddings; None leaves it to `embedding_dim`.
    """

    first_K: Tensor

    def __init__(self, num_levels: Sequence[int], *, dim: int | None = None) -> None:
        super().__init__()
        columns_by_dim: dict[int, list[int]] = {}
        for column, levels in enumerate(num_levels):
            columns_by_dim.setdefault(dim or embedding_dim(levels), []).append(column)
        self.tables = nn.ModuleList()
        by_width = sorted(columns_by_dim.items())
        self.ordered = Columns([column for _, columns in by_width for column in columns])
        self._counts = [len(columns) for _, columns in by_width]
        places: list[Tensor] = []
        for width, columns in by_width:
            rows = torch.tensor([num_levels[column] + 1 for column in columns])
            places.append(rows.cumsum(0) - rows + 1)  # the row of code 0; code -1 takes the row before it
            table = _Table(int(rows.sum()), width)
            nn.init.uniform_(table.weight, -(width**-0.5), width**-0.5)
            self.tables.append(table)
        self.register_buffer("first_K", torch.cat(places), persistent=False)
        self.num_outputs = sum(width * len(columns) for width, columns in by_width)

    def forward(self, codes_BK: Tensor) -> Tensor:
        rows_BK = self.ordered(codes_BK) + self.first_K
        parts = [
            table(rows).flatten(1)
            for table, rows in zip(self.tables, rows_BK.split(self._counts, dim=1), strict=True)
        ]
        return torch.cat(parts, dim=1)


class InputLayer(nn.Module):
    """Numbers (B, G) and codes (B, K) side by side as one vector (B, D)."""

    def __init__(self, shape: InputShape) -> None:
        super().__init__()
        self.embeddings = CategoryEmbeddings(shape.num_levels) if shape.num_levels else None
        self.num_outputs = shape.num_numeric + (self.embeddings.num_outputs if self.embeddings else 0)

    def forward(self, numeric_BG: Tensor, codes_BK: Tensor) -> Tensor:
        if self.embeddings is None:
            return numeric_BG
        return torch.cat([numeric_BG, self.embeddings(codes_BK)], dim=1)
