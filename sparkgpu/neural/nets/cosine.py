"""Cosine embeddings of numbers after TabPack (Gorishniy et al., ICML 2026), shared by an ensemble's members.

A number becomes itself and cosines of it whose frequencies and phases are learned. TabPack draws one scale of
frequencies for each of its networks. Here all members see the same cosines, so their scales are spread from
slow ones, which are smooth over a whole column, to fast ones, which tell neighbouring values apart. A factor
that starts at 0 stands behind each: a cosine takes part only as far as training finds a use for it.

B rows, F columns, W cosines of a column, E = 1 + W embedding width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_SLOWEST, _FASTEST = 0.01, 10.0  # TabPack's range, in periods per standard deviation of a column
_MOST_DEVIATIONS = 3.0


class CosineEmbeddings(nn.Module):
    """Numbers (B, F) with a deviation of about 1 to embeddings (B, F, E)."""

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
