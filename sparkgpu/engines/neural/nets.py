"""The networks: what is computed from prepared numbers and category codes, whatever spreads or trains it.

A network takes numbers that are already on a common scale (`preprocess`) and codes as the table reader
gives them, -1 for missing; it returns raw outputs, whose meaning is `objective`'s affair.

B rows, G numeric inputs, K categorical columns, D width, C outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_MOST_EMBEDDING_DIM = 8


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the table imposes on a network: inputs, levels of each categorical column, outputs."""

    num_numeric: int
    num_levels: tuple[int, ...]
    num_outputs: int


def embedding_dim(num_levels: int) -> int:
    """The width grows slower than the vocabulary (fastai's rule of thumb) and ends at 8, as in RealMLP.

    The rule alone ends at 50: on the flights table that overfits (RMSE 39.3 against 38.6) and costs a third
    more time.
    """
    return max(1, min(_MOST_EMBEDDING_DIM, round(1.6 * math.pow(num_levels, 0.56))))


class CategoryEmbeddings(nn.Module):
    """Codes (B, K) to vectors (B, D): one embedding per column, its first row for missing and unknown.

    Columns whose embeddings are equally wide share one table, stacked: a handful of look-ups a step instead
    of one per column.
    """

    def __init__(self, num_levels: Sequence[int]) -> None:
        super().__init__()
        columns_by_dim: dict[int, list[int]] = {}
        for column, levels in enumerate(num_levels):
            columns_by_dim.setdefault(embedding_dim(levels), []).append(column)
        self.tables = nn.ModuleList()
        self._places: list[tuple[str, str]] = []
        for dim, columns in sorted(columns_by_dim.items()):
            rows = torch.tensor([num_levels[column] + 1 for column in columns])
            first = rows.cumsum(0) - rows + 1  # the row of code 0: code -1 takes the one before it
            names = (f"columns_{dim}", f"first_{dim}")
            self.register_buffer(names[0], torch.tensor(columns), persistent=False)
            self.register_buffer(names[1], first.to(torch.int32), persistent=False)
            self._places.append(names)
            table = nn.Embedding(int(rows.sum()), dim)
            nn.init.uniform_(table.weight, -(dim**-0.5), dim**-0.5)
            self.tables.append(table)
        self.num_outputs = sum(dim * len(columns) for dim, columns in columns_by_dim.items())

    def forward(self, codes_BK: Tensor) -> Tensor:
        parts = [
            table(codes_BK.index_select(1, self.get_buffer(columns)) + self.get_buffer(first)).flatten(1)
            for table, (columns, first) in zip(self.tables, self._places, strict=True)
        ]
        return torch.cat(parts, dim=1)


class Dropout(nn.Module):
    """Dropout that costs little on a CPU; elsewhere torch's own.

    torch draws one random number per value on the CPU, which took longer than both layers around it. Here
    eight values share one draw, a byte each, so that on the CPU `p` is rounded to 1/256 (the scale follows
    the rounded rate). uint8 `clamp` and `sub_` stand for a comparison because torch's booleans are slow.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self._dropped = min(round(p * 256), 255)

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x_BD: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x_BD
        if x_BD.device.type != "cpu":
            return functional.dropout(x_BD, self.p)
        if self._dropped == 0:
            return x_BD
        draws = torch.empty(-(-x_BD.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        bytes_BD = draws.view(torch.uint8)[: x_BD.numel()].view(x_BD.shape)
        kept_BD = bytes_BD.clamp_(self._dropped - 1, self._dropped).sub_(self._dropped - 1)
        return x_BD * kept_BD.to(x_BD.dtype).mul_(256 / (256 - self._dropped))


class InputLayer(nn.Module):
    """Numbers (B, G) and codes (B, K) side by side as one vector (B, D)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embeddings = CategoryEmbeddings(shape.num_levels) if shape.num_levels else None
        self.num_outputs = shape.num_numeric + (self.embeddings.num_outputs if self.embeddings else 0)

    def forward(self, numeric_BG: Tensor, codes_BK: Tensor) -> Tensor:
        if self.embeddings is None:
            return numeric_BG
        return torch.cat([numeric_BG, self.embeddings(codes_BK)], dim=1)


class MLP(nn.Module):
    """Hidden layers of ReLU and dropout, then a linear output: (B, G), (B, K) to (B, C)."""

    def __init__(self, shape: Shape, *, hidden: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.input = InputLayer(shape)
        layers: list[nn.Module] = []
        width = self.input.num_outputs
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU(), Dropout(dropout)]
            width = size
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, shape.num_outputs)

    def forward(self, numeric_BG: Tensor, codes_BK: Tensor) -> Tensor:
        out_BC: Tensor = self.output(self.hidden(self.input(numeric_BG, codes_BK)))
        return out_BC
