"""Category codes as one-hot vectors, for columns with few levels.

B rows, K columns, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class OneHot(nn.Module):
    """Codes (B, K) to zeros and ones (B, D): each column has a place for missing and one for each level."""

    first_K: Tensor

    def __init__(self, num_levels: Sequence[int]) -> None:
        super().__init__()
        sizes_K = torch.tensor([levels + 1 for levels in num_levels])
        self.num_outputs = int(sizes_K.sum())
        # The place of code 0; code -1 takes the place before it.
        self.register_buffer("first_K", sizes_K.cumsum(0) - sizes_K + 1, persistent=False)

    def forward(self, codes_BK: Tensor) -> Tensor:
        out_BD = torch.zeros((len(codes_BK), self.num_outputs), device=codes_BK.device)
        return out_BD.scatter_(1, codes_BK + self.first_K, 1.0)
