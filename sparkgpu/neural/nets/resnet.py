"""The residual network for tables by Gorishniy et al. (NeurIPS 2021), with layer normalisation.

The paper is "Revisiting Deep Learning Models for Tabular Data"; it uses batch normalisation. That makes a
row's gradient depend on the other rows of the pass, so a batch cut into micro-batches or over ranks would
train another network than the whole batch.
"""

from __future__ import annotations

from torch import Tensor, nn

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.dropout import Dropout
from sparkgpu.neural.nets.inputs import InputLayer
from sparkgpu.neural.nets.network import InputShape, Members, Network, TabularNet

_EXPANSION = 2  # the width inside a block, relative to the stream's width


class ResidualBlock(nn.Module):
    """x + f(x), both (B, D)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, _EXPANSION * width)
        self.activation = nn.ReLU()
        self.dropout = Dropout(dropout)
        self.reduce = nn.Linear(_EXPANSION * width, width)

    def forward(self, x_BD: Tensor) -> Tensor:
        inner = self.dropout(self.expand(self.norm(x_BD)), self.activation)
        out_BD: Tensor = x_BD + self.reduce(inner)
        return out_BD


class ResNetInput(nn.Module):
    """Numbers and codes to the stream's width (B, D)."""

    def __init__(self, shape: InputShape, width: int) -> None:
        super().__init__()
        self.columns = InputLayer(shape)
        self.linear = nn.Linear(self.columns.num_outputs, width)

    def forward(self, numeric_BG: Tensor, codes_BK: Tensor) -> Tensor:
        out_BD: Tensor = self.linear(self.columns(numeric_BG, codes_BK))
        return out_BD


def build_resnet(shape: InputShape, parameters: NeuralParameters) -> TabularNet:
    """A block for each entry of `hidden`; all entries are the same width."""
    width = parameters.hidden[0]
    blocks = [ResidualBlock(width, parameters.dropout) for _ in parameters.hidden]
    output = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, shape.num_outputs))
    return TabularNet(ResNetInput(shape, width), blocks, Members(output))


NETWORK = Network(build=build_resnet)
