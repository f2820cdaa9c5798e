"""What a network must know about the table.

G numeric inputs, K categorical columns, C outputs, Q bin edges of a column.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class InputShape:
    """The number of inputs, the levels of each categorical column, the number of outputs, and bins.

    `bins` holds the edges (Q,) of each numeric input for piecewise-linear embeddings; it is empty for
    networks without them.
    """

    num_numeric: int
    num_levels: tuple[int, ...]
    num_outputs: int
    bins: tuple[Tensor, ...] = ()
