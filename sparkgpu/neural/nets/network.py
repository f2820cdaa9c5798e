"""A network for the trainer: how to build it, how to scale its numbers, how to train it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.registry.networks import NETWORKS
from sparkgpu.neural.nets.dropout import number_layers
from sparkgpu.neural.nets.shape import InputShape
from sparkgpu.neural.nets.tabular_net import TabularNet
from sparkgpu.neural.preprocess import NumericTransform, QuantileNormal
from sparkgpu.neural.training.optimizer import Recipe


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network, which its entry in `sparkgpu.core.config.registry.networks` names.

    `build` makes it from the table's shape; `transform` brings numbers to its scale; `recipe` is how its
    authors train it. `bins` finds edges for its embeddings of numbers, from quantiles of the prepared columns
    and the maximal number of bins; None if it has no such embeddings. `start` changes a new network to suit
    training rows, given their prepared numbers and codes; None if its initial weights need none.
    """

    build: Callable[[InputShape, NeuralParameters], TabularNet]
    transform: type[NumericTransform] = QuantileNormal
    recipe: Recipe = field(default_factory=Recipe)
    bins: Callable[[Tensor, int], tuple[Tensor, ...]] | None = None
    start: Callable[[TabularNet, Tensor, Tensor], None] | None = None


def find_network(parameters: NeuralParameters) -> Network:
    """The network that the parameters name."""
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
