"""A network: one layer over the inputs."""

from __future__ import annotations

from torch import nn

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.inputs import InputLayer
from sparkgpu.neural.nets.network import InputShape, Members, Network, TabularNet


def build(shape: InputShape, parameters: NeuralParameters) -> TabularNet:
    """Inputs, one hidden layer, outputs."""
    first, width = InputLayer(shape), parameters.hidden[0]
    block = nn.Sequential(nn.Linear(first.num_outputs, width), nn.ReLU())
    return TabularNet(first, [block], Members(nn.Linear(width, shape.num_outputs)))


NETWORK = Network(build=build)
