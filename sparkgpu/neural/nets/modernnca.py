"""ModernNCA (Ye et al., ICLR 2025): a row's prediction is the mean target of training rows that are near it.

Nearness is learned: numbers become periodic embeddings, a linear layer makes one vector of a row, and the
distance of two vectors is that of two rows. The settings are those of the authors' TALENT toolbox, with
differences that keep a row's gradient independent of the other rows of its batch, so that every strategy and
micro-batch trains the same network: a step's candidates are drawn from all training rows, not from those
outside the batch, and blocks, of which there are none by default, have layer normalisation and no dropout.
Categories are embedded.

The candidates are part of the network, so of its saved file: it holds training rows. Limits: at most
100,000 candidates, of which a step sees half, and at most 8,192.

B rows, N candidates, S of them in a pass, G numeric inputs, K categorical columns, D width, C outputs,
H frequencies, E embedding width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.dropout import Dropout, Place, derived_seed
from sparkgpu.neural.nets.inputs import CategoryEmbeddings
from sparkgpu.neural.nets.network import InputShape, Network, TabularNet
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.training.optimizer import Recipe

_FREQUENCIES = 77
_FREQUENCY_STD = 0.04431360576139521
_SHARE_LEFT_OUT = 0.5
_MOST_DRAWN = 8_192
_MOST_CANDIDATES = 100_000
_MOST_PAIRS = 2**24  # of rows and candidates, or their waves, at once where nothing is learned
_LEAST = 1e-7  # as published: a class that no near candidate has
_ALMOST_ZERO = 1e-30
_NEVER = -1e9  # no infinity: a row may be the only candidate


class PeriodicLinear(nn.Module):
    """PLR embeddings, the lite form: each number (B, G) to E values, by one layer for all columns."""

    def __init__(self, num_numeric: int, width: int) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.randn(num_numeric, _FREQUENCIES) * _FREQUENCY_STD)
        self.linear = nn.Linear(2 * _FREQUENCIES, width)
        self.num_outputs = num_numeric * width

    def forward(self, x_BG: Tensor) -> Tensor:
        wave_BGH = 2 * math.pi * self.frequency * x_BG.unsqueeze(2)
        wave_BGH = torch.cat([wave_BGH.cos(), wave_BGH.sin()], dim=2)
        return functional.relu(self.linear(wave_BGH)).flatten(1)


class Encoder(nn.Module):
    """Numbers and codes to the vector of a row (B, D)."""

    def __init__(self, shape: InputShape, width: int, embedding_dim: int, *, bias: bool) -> None:
        super().__init__()
        self.periodic = PeriodicLinear(shape.num_numeric, embedding_dim) if shape.num_numeric else None
        self.embeddings = CategoryEmbeddings(shape.num_levels) if shape.num_levels else None
        parts = (self.periodic, self.embeddings)
        inputs = sum(part.num_outputs for part in parts if part is not None)
        self.linear = nn.Linear(inputs, width, bias=bias)

    def forward(self, numeric_BG: Tensor, codes_BK: Tensor) -> Tensor:
        parts: list[Tensor] = []
        if self.periodic is not None:
            parts.append(self.periodic(numeric_BG))
        if self.embeddings is not None:
            parts.append(self.embeddings(codes_BK))
        out_BD: Tensor = self.linear(torch.cat(parts, dim=1))
        return out_BD


class Block(nn.Module):
    """(B, D) to (B, D), without a sum around it."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, inner)
        self.reduce = nn.Linear(inner, width)

    def forward(self, x_BD: Tensor) -> Tensor:
        out_BD: Tensor = self.reduce(functional.relu(self.expand(self.norm(x_BD))))
        return out_BD


class Draw(Dropout):
    """A dropout of candidates: the places (S,) of those that a step's rows see, without repetition."""

    def __init__(self) -> None:
        super().__init__(_SHARE_LEFT_OUT)
        self._candidates = 0

    def forward(self, row_id_N: Tensor, /, activation: nn.Module | None = None) -> Tensor:
        held, place = self.held, self.place
        assert place is not None  # set by the training loop before every forward pass
        if held is not None and held.draws_NW is not None:
            return held.draws_NW
        self._candidates = len(row_id_N)
        most = min(math.ceil(self._candidates * (1 - self.p)), _MOST_DRAWN)
        place_S = torch.empty(most, dtype=torch.int64, device=row_id_N.device)
        self._fill(place_S, place)
        if held is not None:
            held.draws_NW = place_S
        return place_S

    def _fill(self, draws_NW: Tensor, place: Place) -> None:
        generator = torch.Generator(draws_NW.device)
        generator.manual_seed(derived_seed(place.seed, place.step, self.layer))
        order_N = torch.randperm(self._candidates, generator=generator, device=draws_NW.device)
        draws_NW.copy_(order_N[: len(draws_NW)])


class Neighbours(nn.Module):
    """The candidates; from the vectors of rows and of candidates to raw outputs (B, 1, C).

    `learns_logarithm` tells whether outputs are logarithms of the mean target. A candidate counts by its
    weight.
    """

    numeric_NG: Tensor
    codes_NK: Tensor
    target_N: Tensor
    log_weight_N: Tensor
    row_id_N: Tensor

    def __init__(self, shape: InputShape, *, learns_logarithm: bool) -> None:
        super().__init__()
        self.draw = Draw()
        self.is_exported = False
        """Whether all rows are computed at once: an exporter needs one graph for any number of them."""
        self._num_classes = shape.num_outputs if shape.num_outputs > 1 else 0
        self._learns_logarithm = learns_logarithm
        self.register_buffer("numeric_NG", torch.empty(0, shape.num_numeric))
        self.register_buffer("codes_NK", torch.empty((0, len(shape.num_levels)), dtype=torch.int32))
        self.register_buffer("target_N", torch.empty(0, dtype=torch.int64 if self._num_classes else None))
        self.register_buffer("log_weight_N", torch.empty(0))
        self.register_buffer("row_id_N", torch.empty(0, dtype=torch.int64))
        self.register_load_state_dict_pre_hook(_make_room)  # type: ignore[no-untyped-call]

    def fill(self, rows: ResidentRows) -> None:
        """Take these rows as the candidates."""
        assert rows.row_id_N is not None
        self.numeric_NG, self.codes_NK = rows.numeric_NG.clone(), rows.codes_NK.clone()
        self.target_N, self.row_id_N = rows.target_N.clone(), rows.row_id_N.clone()
        weight_N = torch.ones(len(rows)) if rows.weight_N is None else rows.weight_N
        self.log_weight_N = weight_N.clamp_min(_ALMOST_ZERO).log()

    def candidates(self) -> tuple[Tensor | None, Tensor, Tensor]:
        """The places (S,) of this pass's candidates (None: all), as in training, their numbers and codes."""
        places = self.draw(self.row_id_N) if self.training else None
        return places, _at(places, self.numeric_NG), _at(places, self.codes_NK)

    def forward(
        self, row_BD: Tensor, candidate_SD: Tensor, places: Tensor | None, row_id_B: Tensor | None
    ) -> Tensor:
        log_weight_S, target_S, id_S = (
            _at(places, whole_N) for whole_N in (self.log_weight_N, self.target_N, self.row_id_N)
        )
        target_SC = target_S.unsqueeze(1)
        if self._num_classes:
            target_SC = (target_SC == torch.arange(self._num_classes, device=target_SC.device)).float()
        # In float32, small distances would depend on which rows are computed together.
        exact = torch.float32 if self.training else torch.float64
        key_SD = candidate_SD.to(exact)

        def mean_of(row_BD: Tensor, row_id_B: Tensor | None = None) -> Tensor:
            near_BS = log_weight_S - torch.cdist(row_BD.to(exact), key_SD).float()
            if row_id_B is not None:  # a training row must not see its own target
                near_BS = near_BS.masked_fill(row_id_B.unsqueeze(1) == id_S, _NEVER)
            return near_BS.softmax(dim=1) @ target_SC

        if self.training or self.is_exported:
            mean_BC = mean_of(row_BD, row_id_B)
        else:
            size = max(1, _MOST_PAIRS // len(key_SD))
            mean_BC = torch.cat([mean_of(part) for part in torch.split(row_BD, size)])
        return ((mean_BC + _LEAST).log() if self._learns_logarithm else mean_BC).unsqueeze(1)


def _at(places: Tensor | None, whole_N: Tensor) -> Tensor:
    return whole_N if places is None else whole_N.index_select(0, places)


def _make_room(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Before it is loaded: as many candidates as the state has."""
    for name, buffer in list(module.named_buffers(recurse=False)):
        if (found := state.get(prefix + name)) is not None and found.shape != buffer.shape:
            setattr(module, name, buffer.new_empty(found.shape))


class ModernNCA(TabularNet):
    """A network whose output layer also needs the vectors of candidates, which it computes in each pass."""

    def forward(self, *x: Tensor) -> Tensor:
        """Training passes bring the rows' ids (B,) as a third input."""
        output = self.output
        assert isinstance(output, Neighbours)
        numeric_BG, codes_BK, *row_id = x
        places, *candidates = output.candidates()
        vectors = self.hidden if self.training or output.is_exported else self._vectors
        candidate_SD, row_BD = vectors(*candidates), vectors(numeric_BG, codes_BK)
        out_BMC: Tensor = output(row_BD, candidate_SD, places, row_id[0] if row_id else None)
        return out_BMC

    def _vectors(self, numeric_NG: Tensor, codes_NK: Tensor) -> Tensor:
        """The vectors (N, D) of rows, in parts: all candidates at once would take tens of GiB."""
        size = max(1, _MOST_PAIRS // (1 + 2 * _FREQUENCIES * numeric_NG.shape[1]))
        parts = zip(*(torch.split(whole, size) for whole in (numeric_NG, codes_NK)), strict=True)
        return torch.cat([self.hidden(*part) for part in parts])


def build_modernnca(shape: InputShape, parameters: NeuralParameters) -> TabularNet:
    """`hidden` begins with the width of a row's vector; a block follows for each further, inner width."""
    width, *inner = parameters.hidden
    # Where nothing follows, a bias is in no distance.
    first = Encoder(shape, width, parameters.embedding_dim, bias=bool(inner))
    blocks: list[nn.Module] = [Block(width, one) for one in inner]
    if blocks:
        blocks.append(nn.LayerNorm(width, bias=False))
    is_logarithm = shape.num_outputs > 1 or parameters.distribution not in ("gaussian", "lognormal")
    return ModernNCA(first, blocks, Neighbours(shape, learns_logarithm=is_logarithm))


def _fill(net: TabularNet, rows: ResidentRows) -> None:
    assert isinstance(net.output, Neighbours)
    net.output.fill(rows)


NETWORK = Network(
    build=build_modernnca,
    recipe=Recipe(most_gradient_norm=None),
    start=_fill,
    start_rows=_MOST_CANDIDATES,
    looks_up=True,
)
