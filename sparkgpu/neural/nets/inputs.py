"""How a network reads a row: numbers on a common scale or their embeddings, and embeddings of category codes.

B rows, G numeric inputs, F of them embedded, K categorical columns, D width, E embedding width; S bins of the
column with the most, R = F * S; W cosines of a column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparkgpu.neural.nets.network import InputShape

_MOST_EMBEDDING_DIM = 8
_SLOWEST, _FASTEST = 0.01, 10.0  # TabPack's range, in periods per standard deviation of a column
_MOST_DEVIATIONS = 3.0


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


class PiecewiseEmbeddings(nn.Module):
    """Numbers (B, F) to embeddings (B, F, E); `bins` are the edges of each column, for at least two bins.

    After Gorishniy et al. (NeurIPS 2022), in the form of the paper on TabM: a straight line of the number
    plus lines that rise within one bin each. The published form (version "B" of the package
    ``rtdl_num_embeddings``, which loads scikit-learn and is not needed here) writes each number as a vector
    over all bins of its column and multiplies that with a matrix. On a CPU the value at the left edge of the
    number's bin and the rise within it are looked up instead, in a third of the time: the same values up to
    rounding.

    A column's last bin is in place S - 1 and the others from place 0 on: a column with fewer bins leaves
    places between its last two unused.
    """

    inner_FS: Tensor
    used_FS: Tensor
    left_FS: Tensor
    width_FS: Tensor
    first_F: Tensor
    low_FS: Tensor
    high_FS: Tensor
    offset_FS: Tensor
    slope_FS: Tensor

    def __init__(self, bins: Sequence[Tensor], embedding_dim: int) -> None:
        super().__init__()
        places, reach = max(len(edges) for edges in bins) - 1, embedding_dim**-0.5
        self.slope = nn.Parameter(torch.empty(len(bins), embedding_dim).uniform_(-reach, reach))
        self.bias = nn.Parameter(torch.empty(len(bins), embedding_dim).uniform_(-reach, reach))
        # The published module draws these, too, before it sets them to 0, so a seed gives the same network.
        self.rise = nn.Parameter(torch.empty(len(bins), places, embedding_dim).uniform_().zero_())
        inner_FS = torch.full((len(bins), places - 1), -torch.inf)
        left_FS, width_FS = torch.zeros(len(bins), places), torch.ones(len(bins), places)
        used_FS = torch.zeros(len(bins), places)
        for column, edges in enumerate(bins):
            before = len(edges) - 2  # the bins before the last one
            inner_FS[column, :before] = edges[1:-1]
            inner_FS[column, before:] = edges[-2]
            used_FS[column, :before], used_FS[column, -1] = 1.0, 1.0
            left_FS[column, :before], left_FS[column, -1] = edges[:-2], edges[-2]
            width_FS[column, :before], width_FS[column, -1] = edges.diff()[:-1], edges[-1] - edges[-2]
        # Before a column's first edge its line goes on, as it does after the last one.
        low_FS, high_FS = torch.zeros_like(used_FS), torch.ones_like(used_FS)
        low_FS[:, 0], high_FS[:, -1] = -torch.inf, torch.inf
        derived = {
            "inner_FS": inner_FS, "used_FS": used_FS, "left_FS": left_FS, "width_FS": width_FS,
            "first_F": torch.arange(len(bins)) * places, "low_FS": low_FS, "high_FS": high_FS,
            "offset_FS": -left_FS / width_FS, "slope_FS": used_FS / width_FS,
        }  # fmt: skip
        for name, value in derived.items():
            self.register_buffer(name, value, persistent=False)
        self.is_exported = False
        """Whether the published form is kept, whose operators any exporter knows."""

    def forward(self, x_BF: Tensor) -> Tensor:
        # A GPU multiplies quickly, and would add a look-up's gradients in any order.
        if self.is_exported or self.rise.device.type != "cpu" or type(self.rise) is not nn.Parameter:
            return self._published(x_BF)
        return self._looked_up(x_BF)

    def _published(self, x_BF: Tensor) -> Tensor:
        x_BF1 = x_BF.unsqueeze(2)
        share_BFS = torch.addcmul(self.offset_FS, self.slope_FS, x_BF1)
        share_FBS = share_BFS.clamp(self.low_FS, self.high_FS).transpose(0, 1)
        line_BFE = torch.addcmul(self.bias, self.slope, x_BF1)
        return line_BFE + (share_FBS @ self.rise).transpose(0, 1)

    def _looked_up(self, x_BF: Tensor) -> Tensor:
        rise_FSE = self.rise * self.used_FS.unsqueeze(2)
        slope_F1E, bias_F1E = self.slope.unsqueeze(1), self.bias.unsqueeze(1)
        # The value at the left edge of each bin: the bias, the straight part, and all bins before.
        start_FSE = functional.pad(rise_FSE.cumsum(1)[:, :-1], (0, 0, 1, 0))
        start_FSE = start_FSE + torch.addcmul(bias_F1E, self.left_FS.unsqueeze(2), slope_F1E)
        rise_FSE = torch.addcmul(rise_FSE, self.width_FS.unsqueeze(2), slope_F1E)
        bin_FB = torch.searchsorted(self.inner_FS, x_BF.t().contiguous(), right=True)
        place_N = (bin_FB.t() + self.first_F).flatten()
        past_N = x_BF.flatten() - self.left_FS.flatten().index_select(0, place_N)
        share_N = past_N / self.width_FS.flatten().index_select(0, place_N)
        found_NE = torch.addcmul(
            start_FSE.flatten(0, 1).index_select(0, place_N),
            share_N.unsqueeze(1),
            rise_FSE.flatten(0, 1).index_select(0, place_N),
        )
        return found_NE.view(*x_BF.shape, -1)


class CosineEmbeddings(nn.Module):
    """Numbers (B, F) with a deviation of about 1 to embeddings (B, F, E), with E = 1 + W.

    After TabPack (Gorishniy et al., ICML 2026): a number becomes itself and cosines of it whose frequencies
    and phases are learned. TabPack draws one scale of frequencies for each of its networks. Here all members
    of an ensemble see the same cosines, so their scales are spread from slow ones, which are smooth over a
    whole column, to fast ones, which tell neighbouring values apart. A factor that starts at 0 stands behind
    each: a cosine takes part only as far as training finds a use for it.
    """

    def __init__(self, num_numeric: int, embedding_dim: int) -> None:
        super().__init__()
        waves = embedding_dim - 1
        frequency_FW = torch.empty(num_numeric, waves)
        nn.init.trunc_normal_(frequency_FW, a=-_MOST_DEVIATIONS, b=_MOST_DEVIATIONS)
        scale_W = torch.logspace(math.log10(_SLOWEST), math.log10(_FASTEST), waves)
        self.frequency = nn.Parameter(frequency_FW * scale_W)
        self.phase = nn.Parameter(torch.zeros(num_numeric, waves))
        self.factor = nn.Parameter(torch.zeros(num_numeric, embedding_dim))
        self.shift = nn.Parameter(torch.zeros(num_numeric, embedding_dim))

    def forward(self, x_BF: Tensor) -> Tensor:
        x_BF1 = x_BF.unsqueeze(2)
        wave_BFW = torch.cos(2 * math.pi * torch.addcmul(self.phase, self.frequency, x_BF1))
        return torch.addcmul(self.shift, self.factor, torch.cat([x_BF1, wave_BFW], dim=2))
