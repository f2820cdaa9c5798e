"""What a network is to the trainer: how it is built, what it wants of the numbers, how it is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from sparkgpu.config.networks import NETWORKS
from sparkgpu.config.parameters import NeuralParameters
from sparkgpu.engines.neural.nets.dropout import number_layers
from sparkgpu.engines.neural.nets.net import TabularNet
from sparkgpu.engines.neural.nets.shape import InputShape
from sparkgpu.engines.neural.preprocess import NumericTransform, QuantileNormal
from sparkgpu.engines.neural.training.optimizer import Recipe


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network, as the entry of its name in `sparkgpu.config.networks` finds it.

    `build` makes it from the table's shape; `transform` brings numbers to the scale it takes; `recipe` is
    how its authors train it. `bins` finds edges for its embeddings of numbers, from quantiles of the
    prepared columns and the most bins that are asked for; None where it has no such embeddings.
    """

    build: Callable[[InputShape, NeuralParameters], TabularNet]
    transform: type[NumericTransform] = QuantileNormal
    recipe: Recipe = field(default_factory=Recipe)
    bins: Callable[[Tensor, int], tuple[Tensor, ...]] | None = None


def find_network(parameters: NeuralParameters) -> Network:
    """The network that the parameters name."""
    network: Network = NETWORKS.find(parameters.architecture).loaded()
    return network


def input_shape(
    parameters: NeuralParameters, transform: NumericTransform, num_levels: tuple[int, ...], num_outputs: int
) -> InputShape:
    """What the table imposes on the network that the parameters name; its bins by the transform alone."""
    bins = find_network(parameters).bins
    return InputShape(
        num_numeric=transform.num_outputs,
        num_levels=num_levels,
        num_outputs=num_outputs,
        bins=bins(transform.quantiles(), parameters.num_bins) if bins else (),
    )


def build_net(parameters: NeuralParameters, shape: InputShape) -> TabularNet:
    """The network that the parameters name, on the CPU, with weights from torch's random numbers."""
    net = find_network(parameters).build(shape, parameters)
    number_layers(net)
    net.recompute = parameters.activation_checkpointing
    return net
