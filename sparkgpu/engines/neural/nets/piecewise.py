"""Piecewise-linear embeddings of numbers by look-ups: on a CPU, in a third of the time of the published form.

The published form writes each number as a vector over all bins of its column and multiplies that with a
matrix. But an embedding is a straight line within a bin, so the line's start and rise, looked up for the
number's bin, give the same values up to rounding. The parameters stay those of the published module.

B rows, F columns, S bins of the column with the most, R = F * S, E embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class PiecewiseLookup(nn.Module):
    """Applies the published embeddings with these `bins` (edges of each column); has no parameters itself.

    The published module keeps a column's last bin in place S - 1 and the others from place 0 on.
    """

    inner_FS: Tensor
    used_FS: Tensor
    left_R: Tensor
    width_R: Tensor
    first_F: Tensor

    def __init__(self, bins: Sequence[Tensor]) -> None:
        super().__init__()
        places = max(len(edges) for edges in bins) - 1
        # A column with fewer bins leaves places between its last two unused.
        inner_FS = torch.full((len(bins), places - 1), -torch.inf)
        left_FS, width_FS = torch.zeros(len(bins), places), torch.ones(len(bins), places)
        used_FS = torch.zeros(len(bins), places)
        for column, edges in enumerate(bins):
            before = len(edges) - 2  # the bins before the last one
            if before:
                inner_FS[column, :before] = edges[1:-1]
                inner_FS[column, before:] = edges[-2]
            used_FS[column, :before], used_FS[column, -1] = 1.0, 1.0
            left_FS[column, :before], left_FS[column, -1] = edges[:-2], edges[-2]
            width_FS[column, :before], width_FS[column, -1] = edges.diff()[:-1], edges[-1] - edges[-2]
        self.register_buffer("inner_FS", inner_FS, persistent=False)
        self.register_buffer("used_FS", used_FS, persistent=False)
        self.register_buffer("left_R", left_FS.flatten(), persistent=False)
        self.register_buffer("width_R", width_FS.flatten(), persistent=False)
        self.register_buffer("first_F", torch.arange(len(bins)) * places, persistent=False)
        self.is_exported = False
        """Whether the published form is kept, whose operators any exporter knows."""

    def serves(self, published: nn.Module) -> bool:
        """On a CPU, with whole tensors: a GPU multiplies quickly and would add gradients in any order."""
        weight = published.get_parameter("linear.weight")
        return not self.is_exported and weight.device.type == "cpu" and type(weight) is nn.Parameter

    def forward(self, published: nn.Module, x_BF: Tensor) -> Tensor:
        """Embeddings (B, F, E)."""
        weight_FSE = published.get_parameter("linear.weight") * self.used_FS.unsqueeze(2)
        slope_F1E = published.get_parameter("linear0.weight").unsqueeze(1)
        bias_F1E = published.get_parameter("linear0.bias").unsqueeze(1)
        places_FS1 = (*weight_FSE.shape[:2], 1)
        # The value at the left edge of each bin: the bias, the straight part, and all bins before.
        start_FSE = functional.pad(weight_FSE.cumsum(1)[:, :-1], (0, 0, 1, 0))
        start_FSE = start_FSE + torch.addcmul(bias_F1E, self.left_R.view(places_FS1), slope_F1E)
        rise_FSE = torch.addcmul(weight_FSE, self.width_R.view(places_FS1), slope_F1E)
        bin_FB = torch.searchsorted(self.inner_FS, x_BF.t().contiguous(), right=True)
        place_N = (bin_FB.t() + self.first_F).flatten()
        past_N = x_BF.flatten() - self.left_R.index_select(0, place_N)
        share_N = past_N / self.width_R.index_select(0, place_N)
        found_NE = torch.addcmul(
            start_FSE.flatten(0, 1).index_select(0, place_N),
            share_N.unsqueeze(1),
            rise_FSE.flatten(0, 1).index_select(0, place_N),
        )
        return found_NE.view(*x_BF.shape, -1)
