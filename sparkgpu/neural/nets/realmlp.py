"""RealMLP-TD (Holzmüller et al., "Better by Default", NeurIPS 2024): a perceptron tuned over many tables.

As published, also where it starts: training rows tell how categories are centred and scaled, and how large
each layer's weights and biases are.

B rows, G numeric inputs, K categorical columns, D width, H frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.inputs import CategoryEmbeddings, Columns
from sparkgpu.neural.nets.mlp import MLPBlock
from sparkgpu.neural.nets.network import InputShape, Members, Network, TabularNet
from sparkgpu.neural.preprocess import RobustClip, bend, middle_and_unit
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.training.optimizer import Recipe

_MOST_ONE_HOT = 8  # a column with more levels is embedded
_EMBEDDING_DIM = 8
_FREQUENCIES = 16
_FREQUENCY_STD = 0.1
_BIAS_ROWS = 5
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
        with torch.autocast("cpu", enabled=False):  # too small to gain
            mixed = torch.einsum("bgh,ghd->bgd", wave_BGH, self.weight) + self.shift
        return torch.cat([x_BG.unsqueeze(2), mixed], dim=2).flatten(1)


class ScaledOneHot(nn.Module):
    """Codes (B, K) to numbers (B, D) on the scale of `RobustClip`: one per level, or one for two levels.

    A missing category is 0 in all numbers of its column before they are centred. Two levels are 1 and -1.
    """

    columns_D: Tensor
    codes_D: Tensor
    is_sign_D: Tensor
    middle_D: Tensor
    unit_D: Tensor

    def __init__(self, num_levels: Sequence[int]) -> None:
        super().__init__()
        places = [
            (column, code, levels == 2)
            for column, levels in enumerate(num_levels)
            for code in range(1 if levels == 2 else levels)
        ]
        self.num_outputs = len(places)
        columns, codes, are_signs = zip(*places, strict=True)
        self.register_buffer("columns_D", torch.tensor(columns), persistent=False)
        self.register_buffer("codes_D", torch.tensor(codes), persistent=False)
        self.register_buffer("is_sign_D", torch.tensor(are_signs), persistent=False)
        self.register_buffer("middle_D", torch.zeros(self.num_outputs))
        self.register_buffer("unit_D", torch.ones(self.num_outputs))

    def fit(self, codes_BK: Tensor) -> None:
        """Take medians and quartiles from these rows."""
        middle_D, unit_D = middle_and_unit(self._numbers(codes_BK).t())
        self.middle_D.copy_(middle_D)
        self.unit_D.copy_(unit_D)

    def forward(self, codes_BK: Tensor) -> Tensor:
        return bend(self._numbers(codes_BK).t(), self.middle_D, self.unit_D).t()

    def _numbers(self, codes_BK: Tensor) -> Tensor:
        codes_BD = codes_BK.index_select(1, self.columns_D)
        return (codes_BD == self.codes_D).float() - (self.is_sign_D & (codes_BD == 1)).float()


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
        self.few, self.many = Columns(few), Columns(many)
        self.periodic = PeriodicEmbeddings(shape.num_numeric) if shape.num_numeric else None
        self.one_hot = ScaledOneHot([shape.num_levels[column] for column in few]) if few else None
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
            parts.append(self.one_hot(self.few(codes_BK)))
        if self.embeddings is not None:
            parts.append(self.embeddings(self.many(codes_BK)))
        out_BD: Tensor = self.scale(torch.cat(parts, dim=1))
        return out_BD


class NTKLinear(nn.Linear):
    """A linear layer in the neural tangent parametrisation: unit weights, inputs over their number's root."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        for parameter in (self.weight, self.bias):
            nn.init.normal_(parameter)

    def fit(self, x_BD: Tensor) -> None:
        """Scale each output's weights so that it varies by 1 over these rows, and shift it by some of them.

        The bias is minus a random mean of the output over a few rows ("he+5": after Steinwart, 2019).
        """
        self.bias.zero_()
        std_D = self(x_BD).std(dim=0, correction=0)
        self.weight /= torch.where(std_D > 0, std_D, 1.0).unsqueeze(1)
        rows_DR = torch.randint(len(x_BD), (self.out_features, _BIAS_ROWS))
        share_DR = torch.empty(rows_DR.shape).exponential_()
        share_DR /= share_DR.sum(dim=1, keepdim=True)
        self.bias.copy_(-(self(x_BD).t().gather(1, rows_DR) * share_DR).sum(dim=1))

    def forward(self, x_BD: Tensor) -> Tensor:
        return super().forward(x_BD * self.in_features**-0.5)


class ParametricActivation(nn.Module):
    """An activation that each unit learns to apply in part; at the start it is applied fully."""

    def __init__(self, width: int, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.ones(width))
        self._function = function

    def forward(self, x_BD: Tensor) -> Tensor:
        return x_BD + (self._function(x_BD) - x_BD) * self.share


def build_realmlp(shape: InputShape, parameters: NeuralParameters) -> TabularNet:
    """A block for each width in `hidden`; SELU for classes, Mish for a number."""
    hidden = parameters.hidden
    first = RealMLPInput(shape)
    function = functional.mish if shape.num_outputs == 1 else functional.selu
    blocks = [
        MLPBlock(NTKLinear(before, after), ParametricActivation(after, function), parameters.dropout)
        for before, after in pairwise([first.num_outputs, *hidden])
    ]
    return TabularNet(first, blocks, Members(NTKLinear(hidden[-1], shape.num_outputs)))


def start_realmlp(net: TabularNet, rows: ResidentRows) -> None:
    """Fit the network's scales, weights and biases to training rows, from the first layer to the last."""
    first, last = net.input, net.output
    assert isinstance(first, RealMLPInput) and isinstance(last, Members)
    if first.one_hot is not None:
        first.one_hot.fit(first.few(rows.codes_NK))
    hidden_BD = first(rows.numeric_NG, rows.codes_NK)
    for block in net.blocks.values():
        assert isinstance(block, MLPBlock) and isinstance(block.linear, NTKLinear)
        block.linear.fit(hidden_BD)
        hidden_BD = block(hidden_BD)
    assert isinstance(last.layer, NTKLinear)
    last.layer.fit(hidden_BD)


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
    start=start_realmlp,
    # Table A.1 of the paper.
    recipe=Recipe(
        betas=(0.9, 0.95),
        most_gradient_norm=None,
        weight_decay=_flat_then_cosine,
        dropout=_flat_then_cosine,
        factors=_factors,
        label_smoothing=0.1,
        clips_predictions=True,
        keeps_least_error=True,
        drops_partial_batch=True,
    ),
)
