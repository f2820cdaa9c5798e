"""The plain multilayer perceptron: linear, ReLU and dropout, repeated."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.dropout import Dropout
from sparkgpu.neural.nets.inputs import InputLayer
from sparkgpu.neural.nets.network import InputShape, Members, Network, TabularNet


class MLPBlock(nn.Module):
    """(B, D) to (B, D')."""

    def __init__(self, linear: nn.Linear, activation: nn.Module, dropout: float) -> None:
        super().__init__()
        self.linear = linear
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x_BD: Tensor) -> Tensor:
        out_BD: Tensor = self.dropout(self.linear(x_BD), self.activation)
        return out_BD


def build_mlp(shape: InputShape, parameters: NeuralParameters) -> TabularNet:
    """A block for each width in `hidden`."""
    first = InputLayer(shape)
    widths = [first.num_outputs, *parameters.hidden]
    blocks = [
        MLPBlock(nn.Linear(before, after), nn.ReLU(), parameters.dropout)
        for before, after in pairwise(widths)
    ]
    return TabularNet(first, blocks, Members(nn.Linear(widths[-1], shape.num_outputs)))


NETWORK = Network(build=build_mlp)
