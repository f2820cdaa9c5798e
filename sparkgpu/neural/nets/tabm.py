"""TabM-mini (Gorishniy et al., "TabM", ICLR 2025): many predictions per row, numbers embedded.

Its M members share all weights except two: the factors of a member's inputs, and its output layer. It starts
as a network of the authors' package ``tabm`` does from the same seed. Where the paper gives every level of a
category its own input, a column with many levels is embedded here.

B rows, G numeric inputs, K categorical columns, E embedding width, D width, M members, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.values import NumberEmbedding
from sparkgpu.neural.nets.inputs import CategoryEmbeddings, Columns, CosineEmbeddings, PiecewiseEmbeddings
from sparkgpu.neural.nets.inputs import embedding_dim as category_dim
from sparkgpu.neural.nets.mlp import MLPBlock
from sparkgpu.neural.nets.network import InputShape, Network, TabularNet
from sparkgpu.neural.training.optimizer import Recipe

_MOST_ONE_HOT = 32  # a column with more levels is embedded
_FEW = 2  # so many outputs of a member are added up one by one
_FEW_IN_ALL = 64  # so many outputs of all members are one product


class OneHot(nn.Module):
    """Codes (B, K) to zeros and ones (B, D): each column has a place for missing and one for each level."""

    first_K: Tensor

    def __init__(self, num_levels: Sequence[int]) -> None:
        super().__init__()
        sizes_K = torch.tensor([levels + 1 for levels in num_levels])
        self.num_outputs = int(sizes_K.sum())
        # The place of code 0; code -1 takes the place before it.
        self.register_buffer("first_K", sizes_K.cumsum(0) - sizes_K + 1, persistent=False)

    def forward(self, codes_BK: Tensor) -> Tensor:
        out_BD = torch.zeros((len(codes_BK), self.num_outputs), device=codes_BK.device)
        return out_BD.scatter_(1, codes_BK + self.first_K, 1.0)


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
        super().__init__(nn.Linear(sum(widths), num_outputs), nn.ReLU(), dropout)
        self.adapter = Adapter(widths, members=members)
        self.may_merge = True
        """Whether the layer's weights may be used without calling it; not if the layer is cut over ranks."""

    def forward(self, x_BD: Tensor) -> Tensor:
        if self.may_merge and len(x_BD) > self.linear.out_features:
            hidden_BMD = self._merged(x_BD)
        else:
            hidden_BMD = self.linear(self.adapter(x_BD))
        out_BMD: Tensor = self.dropout(hidden_BMD, self.activation)
        return out_BMD

    def _merged(self, x_BD: Tensor) -> Tensor:
        """Rows through the layers of all members, which stand side by side."""
        factor_MD, layer_ED, bias_E = self.adapter.weight, self.linear.weight, self.linear.bias
        members, outputs = len(factor_MD), len(layer_ED)
        kind = x_BD.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            # Added by itself, a float32 bias would make the members' values float32, too.
            dtype = torch.get_autocast_dtype(kind)
            weight_MED = factor_MD.to(dtype).unsqueeze(1) * layer_ED.to(dtype)
            hidden_BN = functional.linear(x_BD, weight_MED.flatten(0, 1), bias_E.to(dtype).repeat(members))
            return hidden_BN.view(-1, members, outputs)
        weight_DME = factor_MD.t().unsqueeze(2) * layer_ED.t().unsqueeze(1)
        return (x_BD @ weight_DME.flatten(1)).view(-1, members, outputs) + bias_E


class MembersOutput(nn.Module):
    """(B, M, D) to (B, M, C), with the published names, shapes and initial values of parameters.

    Its products are narrow, with as many columns as there are classes. On a CPU the published layer of the
    package ``tabm`` computes them several times slower than the forms here, which differ only in rounding.
    """

    def __init__(self, num_inputs: int, num_outputs: int, *, members: int) -> None:
        super().__init__()
        reach = num_inputs**-0.5
        self.weight = nn.Parameter(torch.empty(members, num_inputs, num_outputs).uniform_(-reach, reach))
        self.bias = nn.Parameter(torch.empty(members, num_outputs).uniform_(-reach, reach))

    def forward(self, x_BMD: Tensor) -> Tensor:
        weight_MDC, bias_MC = self.weight, self.bias
        if weight_MDC.device.type != "cpu" or type(weight_MDC) is not nn.Parameter:
            return (x_BMD.transpose(0, 1) @ weight_MDC).transpose(0, 1) + bias_MC
        if not (torch.is_grad_enabled() and x_BMD.requires_grad):
            return _narrow_product(x_BMD, weight_MDC) + bias_MC
        if torch.is_autocast_enabled("cpu"):
            return _reduced_product(x_BMD, weight_MDC) + bias_MC
        product_BMC: Tensor = _NarrowProduct.apply(x_BMD, weight_MDC)  # type: ignore[no-untyped-call]
        return product_BMC + bias_MC


def _narrow_product(x_BMD: Tensor, weight_MDC: Tensor) -> Tensor:
    return (weight_MDC.transpose(1, 2) @ x_BMD.permute(1, 2, 0)).permute(2, 0, 1)


def _reduced_product(x_BMD: Tensor, weight_MDC: Tensor) -> Tensor:
    """The same in autocast's format, in which narrow products of each member take longer."""
    members, width, outputs = weight_MDC.shape
    if members * outputs > _FEW_IN_ALL:
        x_MBD = x_BMD.transpose(0, 1).contiguous()  # oneDNN copies what is not in one piece
        return (x_MBD @ weight_MDC).transpose(0, 1)
    # One product for all members, with zeros where one would meet another's values.
    weight_MCMD = weight_MDC.new_zeros(members, outputs, members, width)
    weight_MCMD.diagonal(dim1=0, dim2=2).copy_(weight_MDC.permute(2, 1, 0))
    weight_ND = weight_MCMD.view(members * outputs, members * width)
    return functional.linear(x_BMD.flatten(1), weight_ND).view(-1, members, outputs)


class _NarrowProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BMD: Tensor, weight_MDC: Tensor) -> Tensor:
        ctx.save_for_backward(x_BMD, weight_MDC)
        return _narrow_product(x_BMD, weight_MDC)

    @staticmethod
    def backward(ctx: Any, gradient_BMC: Tensor) -> tuple[Tensor, Tensor]:
        x_BMD, weight_MDC = ctx.saved_tensors
        gradient_MCB = gradient_BMC.permute(1, 2, 0).contiguous()
        of_weight_MDC = (gradient_MCB @ x_BMD.transpose(0, 1)).transpose(1, 2)
        outputs = weight_MDC.shape[2]
        if outputs > _FEW:
            return (gradient_MCB.transpose(1, 2) @ weight_MDC.transpose(1, 2)).transpose(0, 1), of_weight_MDC
        weight_CMD = weight_MDC.permute(2, 0, 1).contiguous()
        of_x_BMD = gradient_BMC[:, :, :1] * weight_CMD[0]
        for output in range(1, outputs):
            of_x_BMD.addcmul_(gradient_BMC[:, :, output : output + 1], weight_CMD[output])
        return of_x_BMD, of_weight_MDC


def build_tabm(shape: InputShape, parameters: NeuralParameters) -> TabularNet:
    """A block for each width in `hidden`; `shape` holds the bins."""
    hidden, dropout, members = parameters.hidden, parameters.dropout, parameters.members
    first = TabMInput(
        shape, embedding_dim=parameters.embedding_dim, number_embedding=parameters.number_embedding
    )
    blocks: list[nn.Module] = [FirstBlock(first.widths, hidden[0], dropout, members=members)]
    blocks += [MLPBlock(nn.Linear(before, after), nn.ReLU(), dropout) for before, after in pairwise(hidden)]
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
