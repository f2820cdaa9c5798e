"""The form that all networks share: an input, a sequence of blocks, an output.

With these parts a network can be spread: a pipeline stage is a sequence of blocks, and sharding wraps block
by block. A network takes numbers that are already on a common scale (`preprocess`) and codes from the table
reader, -1 for missing. `objective` defines the meaning of its outputs.

B rows, G numeric inputs, K categorical columns, D width, M members, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class TabularNet(nn.Module):
    """(B, G) numbers and (B, K) codes to raw outputs (B, M, C): M predictions of each row.

    A pipeline stage is such a network without its input, its output or some of its blocks: it takes and
    returns the values between blocks.
    """

    def __init__(self, input: nn.Module, blocks: Sequence[nn.Module], output: nn.Module) -> None:
        super().__init__()
        self.input: nn.Module | None = input
        self.blocks = nn.ModuleDict({str(number): block for number, block in enumerate(blocks)})
        self.output: nn.Module | None = output
        self.recompute = False
        """Whether to compute the blocks' activations again for the gradient instead of keeping them."""

    def forward(self, *x: Tensor) -> Tensor:
        hidden: Tensor = self.input(*x) if self.input is not None else x[0]
        for block in self.blocks.values():
            hidden = _recomputed(block, hidden) if self.recompute and self.training else block(hidden)
        return self.output(hidden) if self.output is not None else hidden


class Members(nn.Module):
    """The output layer of a network with one prediction per row: (B, D) to (B, 1, C)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x_BD: Tensor) -> Tensor:
        out_BC: Tensor = self.layer(x_BD)
        return out_BC.unsqueeze(1)


def _recomputed(block: nn.Module, hidden: Tensor) -> Tensor:
    # Dropout draws from its place, not from torch's random state, so no state must be restored.
    out: Any = checkpoint(block, hidden, use_reentrant=False, preserve_rng_state=False)
    return out  # type: ignore[no-any-return]
