"""TabM-mini (Gorishniy et al., "TabM", ICLR 2025): many predictions per row, numbers embedded.

One network gives the predictions of M members. They share all weights except two: the factors of a member's
inputs, and its output layer. It starts as a network of the authors' package ``tabm`` does from the same seed.
The dropout is ours, so that a mask depends only on the place in training.

The paper gives every level of a category its own input. Here a column with many levels is embedded, since a
hundred thousand levels would make a hundred thousand inputs.

B rows, G numeric inputs, K categorical columns, E embedding width, D width, M members, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.values import NumberEmbedding
from sparkgpu.neural.nets.categories import OneHot
from sparkgpu.neural.nets.cosine import CosineEmbeddings
from sparkgpu.neural.nets.inputs import CategoryEmbeddings, Columns
from sparkgpu.neural.nets.inputs import embedding_dim as category_dim
from sparkgpu.neural.nets.members_output import MembersOutput
from sparkgpu.neural.nets.mlp import MLPBlock
from sparkgpu.neural.nets.network import Network
from sparkgpu.neural.nets.piecewise import PiecewiseEmbeddings
from sparkgpu.neural.nets.shape import InputShape
from sparkgpu.neural.nets.tabular_net import TabularNet
from sparkgpu.neural.training.optimizer import Recipe

_MOST_ONE_HOT = 32  # a column with more levels is embedded


class TabMInput(nn.Module):
    """Numbers and codes side by side (B, D); `widths` are the output widths of the columns."""

    def __init__(
        self, shape: InputShape, *, embedding_dim: int, number_embedding: NumberEmbedding = "piecewise"
    ) -> None:
        super().__init__()
        # An embedding does not help a column with two values, so missing indicators stay as they are.
        embedded = [column for column, edges in enumerate(shape.bins) if len(edges) > 2]
        plain = [column for column, edges in enumerate(shape.bins) if len(edges) <= 2]
        few = [column for column, levels in enumerate(shape.num_levels) if levels <= _MOST_ONE_HOT]
        many = [column for column, levels in enumerate(shape.num_levels) if levels > _MOST_ONE_HOT]
        self.embedded, self.plain, self.few, self.many = map(Columns, (embedded, plain, few, many))
        self.numeric: nn.Module | None = None
        if embedded and number_embedding == "cosine":
            self.numeric = CosineEmbeddings(len(embedded), embedding_dim)
        elif embedded:
            self.numeric = PiecewiseEmbeddings([shape.bins[column] for column in embedded], embedding_dim)
        self.one_hot = OneHot([shape.num_levels[column] for column in few]) if few else None
        self.embeddings = CategoryEmbeddings([shape.num_levels[column] for column in many]) if many else None
        self.widths = (
            *(embedding_dim for _ in embedded),
            *(1 for _ in plain),
            *(shape.num_levels[column] + 1 for column in few),
            *sorted(
                category_dim(shape.num_levels[column]) for column in many
            ),  # in the order of the embeddings
        )

    def forward(self, numeric_BG: Tensor, codes_BK: Tensor) -> Tensor:
        parts: list[Tensor] = []
        if self.numeric is not None:
            parts.append(self.numeric(self.embedded(numeric_BG)).flatten(1))
        if self.plain.num_outputs:
            parts.append(self.plain(numeric_BG))
        if self.one_hot is not None:
            parts.append(self.one_hot(self.few(codes_BK)))
        if self.embeddings is not None:
            parts.append(self.embeddings(self.many(codes_BK)))
        return torch.cat(parts, dim=1)


class Adapter(nn.Module):
    """A row (B, D) to its members' (B, M, D).

    At the start, a member weighs all inputs from one column equally.
    """

    def __init__(self, widths: Sequence[int], *, members: int) -> None:
        super().__init__()
        factors = [torch.randn(members, 1).expand(-1, width) for width in widths]
        self.weight = nn.Parameter(torch.cat(factors, dim=1))

    def forward(self, x_BD: Tensor) -> Tensor:
        return x_BD.unsqueeze(1) * self.weight


class FirstBlock(MLPBlock):
    """A row (B, D) to its members' (B, M, D'): each member weighs the inputs itself, the layer is shared.

    A member's weights can multiply the rows or the layer, with the same result up to rounding. On the layer,
    one matrix product serves the whole batch and all members, which is cheaper if the batch is larger than
    the layer is wide.
    """

    def __init__(self, widths: Sequence[int], num_outputs: int, dropout: float, *, members: int) -> None:
        super().__init__(sum(widths), num_outputs, dropout)
        self.adapter = Adapter(widths, members=members)
        self.may_merge = True
        """Whether the layer's weights may be used without calling it; not if the layer is cut over ranks."""

    def forward(self, x_BD: Tensor) -> Tensor:
        if self.may_merge and len(x_BD) > self.linear.out_features:
            hidden_BMD = self._merged(x_BD)
        else:
            hidden_BMD = self.linear(self.adapter(x_BD))
        out_BMD: Tensor = self.dropout(self.activation(hidden_BMD))
        return out_BMD

    def _merged(self, x_BD: Tensor) -> Tensor:
        """Rows through the layers of all members, which stand side by side."""
        factor_MD, layer_ED, bias_E = self.adapter.weight, self.linear.weight, self.linear.bias
        members, outputs = len(factor_MD), len(layer_ED)
        kind = x_BD.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            # Added by itself, a float32 bias would make the members' values float32, too.
            weight_MED = factor_MD.unsqueeze(1) * layer_ED
            hidden_BN = functional.linear(x_BD, weight_MED.flatten(0, 1), bias_E.repeat(members))
            return hidden_BN.view(-1, members, outputs)
        weight_DME = factor_MD.t().unsqueeze(2) * layer_ED.t().unsqueeze(1)
        return (x_BD @ weight_DME.flatten(1)).view(-1, members, outputs) + bias_E


def build_tabm(shape: InputShape, parameters: NeuralParameters) -> TabularNet:
    """A block for each width in `hidden`; `shape` holds the bins."""
    hidden, dropout, members = parameters.hidden, parameters.dropout, parameters.members
    first = TabMInput(
        shape, embedding_dim=parameters.embedding_dim, number_embedding=parameters.number_embedding
    )
    blocks: list[nn.Module] = [FirstBlock(first.widths, hidden[0], dropout, members=members)]
    blocks += [MLPBlock(before, after, dropout) for before, after in pairwise(hidden)]
    return TabularNet(first, blocks, MembersOutput(hidden[-1], shape.num_outputs, members=members))


def find_bins(quantiles_QG: Tensor, num_bins: int) -> tuple[Tensor, ...]:
    """Edges of at most `num_bins` bins for each prepared numeric column, from the quantiles of its values.

    Without ties these are the paper's bins, with equally many rows in each. A value that many rows share uses
    only one bin, so that the other values get bins, too: if nine rows of ten are 0, nearly all of the paper's
    edges would be 0. There are at least two edges; a constant column gets a bin around its value.
    """
    bins = []
    for column_Q in quantiles_QG.float().cpu().unbind(1):
        values_U, count_U = torch.unique(column_Q, return_counts=True)
        weight_U = count_U.clamp(max=-(-len(column_Q) // num_bins)).double()
        place_U = (weight_U.cumsum(0) - weight_U[0]) / (weight_U.sum() - weight_U[0]).clamp(min=1)
        places = torch.linspace(0.0, 1.0, num_bins + 1, dtype=torch.float64)
        index = torch.searchsorted(place_U, places - 1e-9).clamp(max=len(values_U) - 1)
        edges = torch.unique(values_U[index])
        bins.append(edges if len(edges) > 1 else torch.stack([edges[0] - 1, edges[0] + 1]))
    return tuple(bins)


def _is_hidden_matrix(name: str) -> bool:
    return name.startswith("blocks.") and name.endswith(".linear.weight")


NETWORK = Network(build=build_tabm, bins=find_bins, recipe=Recipe(is_hidden_matrix=_is_hidden_matrix))
