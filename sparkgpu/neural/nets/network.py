"""What every network is: an input, a sequence of blocks and an output, and how the trainer gets one.

A network takes numbers that are already on a common scale (`preprocess`) and codes, -1 for missing.
`objective` defines the meaning of its outputs.

B rows, G numeric inputs, K categorical columns, D width, M members, C outputs, Q bin edges of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.registry.networks import NETWORKS
from sparkgpu.neural.nets.dropout import number_layers
from sparkgpu.neural.preprocess import NumericTransform, QuantileNormal
from sparkgpu.neural.training.optimizer import Recipe

if TYPE_CHECKING:
    from sparkgpu.neural.rows.resident import ResidentRows


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
        hidden = self.hidden(*x)
        return self.output(hidden) if self.output is not None else hidden

    def hidden(self, *x: Tensor) -> Tensor:
        """What the output layer gets."""
        hidden: Tensor = self.input(*x) if self.input is not None else x[0]
        for block in self.blocks.values():
            if self.recompute and self.training:
                # Dropout draws from its place, not from torch's random state, so no state must be restored.
                hidden = checkpoint(block, hidden, use_reentrant=False, preserve_rng_state=False)
            else:
                hidden = block(hidden)
        return hidden


class Members(nn.Module):
    """The output layer of a network with one prediction per row: (B, D) to (B, 1, C)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x_BD: Tensor) -> Tensor:
        out_BC: Tensor = self.layer(x_BD)
        return out_BC.unsqueeze(1)


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network, which its entry in `sparkgpu.core.config.registry.networks` names.

    `build` makes it from the table's shape; `transform` brings numbers to its scale; `recipe` is how its
    authors train it. `bins` finds edges for its embeddings of numbers, from quantiles of the prepared columns
    and the maximal number of bins; None if it has no such embeddings. `start` changes a new network to suit
    some prepared training rows, at most `start_rows`, which are on the CPU; None if it needs none. One that
    `looks_up` these rows later gets the ids of a step's rows as a third input.
    """

    build: Callable[[InputShape, NeuralParameters], TabularNet]
    transform: type[NumericTransform] = QuantileNormal
    recipe: Recipe = field(default_factory=Recipe)
    bins: Callable[[Tensor, int], tuple[Tensor, ...]] | None = None
    start: Callable[[TabularNet, ResidentRows], None] | None = None
    start_rows: int = 10_000
    looks_up: bool = False


def find_network(parameters: NeuralParameters) -> Network:
    network: Network = NETWORKS.find(parameters.architecture).loaded()
    return network


def input_shape(
    parameters: NeuralParameters, transform: NumericTransform, num_levels: tuple[int, ...], num_outputs: int
) -> InputShape:
    """The network's input shape for this table; its bins come from the transform alone."""
    bins = find_network(parameters).bins
    return InputShape(
        num_numeric=transform.num_outputs,
        num_levels=num_levels,
        num_outputs=num_outputs,
        bins=bins(transform.quantiles(), parameters.num_bins) if bins else (),
    )


def build_net(parameters: NeuralParameters, shape: InputShape) -> TabularNet:
    """Build the network that the parameters name, on the CPU, with torch's random initial weights."""
    net = find_network(parameters).build(shape, parameters)
    number_layers(net)
    net.recompute = parameters.activation_checkpointing
    return net
