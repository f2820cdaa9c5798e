"""What the table imposes on a network.

G numeric inputs, K categorical columns, C outputs, Q bin edges of a column.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class InputShape:
    """Inputs, levels of each categorical column, outputs; and what a network wants to know of the inputs.

    `bins` holds the edges (Q,) of each numeric input for piecewise-linear embeddings, empty where the
    network has none.
    """

    num_numeric: int
    num_levels: tuple[int, ...]
    num_outputs: int
    bins: tuple[Tensor, ...] = ()
