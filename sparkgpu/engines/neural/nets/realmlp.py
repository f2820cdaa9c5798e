"""RealMLP-TD (Holzmüller et al., "Better by Default", NeurIPS 2024): a perceptron tuned over many tables.

Left out are two details of little effect: biases that start from the training data, and an input of one
number for categories of two levels.

B rows, G numeric inputs, K categorical columns, D width, H frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparkgpu.config.parameters import NeuralParameters
from sparkgpu.engines.neural.nets.categories import OneHot
from sparkgpu.engines.neural.nets.dropout import Dropout
from sparkgpu.engines.neural.nets.inputs import CategoryEmbeddings
from sparkgpu.engines.neural.nets.network import Network
from sparkgpu.engines.neural.nets.shape import InputShape
from sparkgpu.engines.neural.nets.tabular_net import Members, TabularNet
from sparkgpu.engines.neural.preprocess import RobustClip
from sparkgpu.engines.neural.training.optimizer import Recipe

_MOST_ONE_HOT = 8  # a column with more levels is embedded
_EMBEDDING_DIM = 8
_FREQUENCIES = 16
_FREQUENCY_STD = 0.1
_PERIODIC_OUTPUTS = 3  # in addition to the number itself


class PeriodicEmbeddings(nn.Module):
    """PBLD: each number (B, G) and three combinations of its cosines (B, 4 G)."""

    def __init__(self, num_numeric: int) -> None:
        super().__init__()
        bound = _FREQUENCIES**-0.5
        self.frequency = nn.Parameter(torch.randn(num_numeric, _FREQUENCIES) * _FREQUENCY_STD)
        self.phase = nn.Parameter(torch.empty(num_numeric, _FREQUENCIES).uniform_(-math.pi, math.pi))
        self.weight = nn.Parameter(
            torch.empty(num_numeric, _FREQUENCIES, _PERIODIC_OUTPUTS).uniform_(-bound, bound)
        )
        self.shift = nn.Parameter(torch.empty(num_numeric, _PERIODIC_OUTPUTS).uniform_(-bound, bound))
        self.num_outputs = num_numeric * (1 + _PERIODIC_OUTPUTS)

    def forward(self, x_BG: Tensor) -> Tensor:
        wave_BGH = torch.cos(2 * math.pi * self.frequency * x_BG.unsqueeze(2) + self.phase)
        mixed = torch.einsum("bgh,ghd->bgd", wave_BGH, self.weight) + self.shift
        return torch.cat([x_BG.unsqueeze(2), mixed], dim=2).flatten(1)


class Scale(nn.Module):
    """A learned factor for each input: a soft selection of features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(width))

    def forward(self, x_BD: Tensor) -> Tensor:
        return x_BD * self.factor


class RealMLPInput(nn.Module):
    """Numbers and codes to scaled inputs (B, D)."""

    def __init__(self, shape: InputShape) -> None:
        super().__init__()
        few = [column for column, levels in enumerate(shape.num_levels) if levels <= _MOST_ONE_HOT]
        many = [column for column, levels in enumerate(shape.num_levels) if levels > _MOST_ONE_HOT]
        self.register_buffer("few", torch.tensor(few, dtype=torch.int64), persistent=False)
        self.register_buffer("many", torch.tensor(many, dtype=torch.int64), persistent=False)
        self.periodic = PeriodicEmbeddings(shape.num_numeric) if shape.num_numeric else None
        self.one_hot = OneHot([shape.num_levels[column] for column in few]) if few else None
        self.embeddings: CategoryEmbeddings | None = None
        if many:
            levels = [shape.num_levels[column] for column in many]
            self.embeddings = CategoryEmbeddings(levels, dim=_EMBEDDING_DIM)
            for table in self.embeddings.tables:
                nn.init.normal_(table.get_parameter("weight"))
        parts = (self.periodic, self.one_hot, self.embeddings)
        self.num_outputs = sum(part.num_outputs for part in parts if part is not None)
        self.scale = Scale(self.num_outputs)

    def forward(self, numeric_BG: Tensor, codes_BK: Tensor) -> Tensor:
        parts: list[Tensor] = []
        if self.periodic is not None:
            parts.append(self.periodic(numeric_BG))
        if self.one_hot is not None:
            parts.append(self.one_hot(codes_BK.index_select(1, self.get_buffer("few"))))
        if self.embeddings is not None:
            parts.append(self.embeddings(codes_BK.index_select(1, self.get_buffer("many"))))
        out_BD: Tensor = self.scale(torch.cat(parts, dim=1))
        return out_BD


class NTKLinear(nn.Linear):
    """A linear layer in the neural tangent parametrisation: unit weights, inputs over their number's root."""

    def __init__(self, in_features: int, out_features: int, *, zero: bool = False) -> None:
        super().__init__(in_features, out_features)
        for parameter in (self.weight, self.bias):
            nn.init.zeros_(parameter) if zero else nn.init.normal_(parameter)

    def forward(self, x_BD: Tensor) -> Tensor:
        return functional.linear(x_BD * self.in_features**-0.5, self.weight, self.bias)


class ParametricActivation(nn.Module):
    """An activation that each unit learns to apply in part; at the start it is applied fully."""

    def __init__(self, width: int, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.ones(width))
        self._function = function

    def forward(self, x_BD: Tensor) -> Tensor:
        return x_BD + (self._function(x_BD) - x_BD) * self.share


class RealMLPBlock(nn.Module):
    """(B, D) to (B, D')."""

    def __init__(
        self, num_inputs: int, num_outputs: int, dropout: float, function: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.linear = NTKLinear(num_inputs, num_outputs)
        self.activation = ParametricActivation(num_outputs, function)
        self.dropout = Dropout(dropout)

    def forward(self, x_BD: Tensor) -> Tensor:
        out_BD: Tensor = self.dropout(self.activation(self.linear(x_BD)))
        return out_BD


def build_realmlp(shape: InputShape, parameters: NeuralParameters) -> TabularNet:
    """A block for each width in `hidden`; SELU for classes, Mish for a number."""
    hidden = parameters.hidden
    first = RealMLPInput(shape)
    function = functional.mish if shape.num_outputs == 1 else functional.selu
    blocks = [
        RealMLPBlock(before, after, parameters.dropout, function)
        for before, after in pairwise([first.num_outputs, *hidden])
    ]
    return TabularNet(first, blocks, Members(NTKLinear(hidden[-1], shape.num_outputs, zero=True)))


def _flat_then_cosine(done: float) -> float:
    return 1.0 if done < 0.5 else 0.5 * (1 + math.cos(math.pi * (2 * done - 1)))


def _factors(name: str) -> tuple[float, float]:
    *_, owner, own = name.split(".")
    if owner == "scale":
        return 6.0, 1.0
    if owner in ("periodic", "activation"):
        return 0.1, 1.0
    return (0.1, 0.0) if own == "bias" else (1.0, 1.0)


NETWORK = Network(
    build=build_realmlp,
    transform=RobustClip,
    # Table A.1 of the paper.
    recipe=Recipe(
        betas=(0.9, 0.95),
        most_gradient_norm=None,
        weight_decay=_flat_then_cosine,
        dropout=_flat_then_cosine,
        factors=_factors,
        label_smoothing=0.1,
        clips_predictions=True,
    ),
)
