"""Dropout, after an activation, whose masks depend on the place of a row in training, not on the process.

Each process draws a mask for the whole batch from (seed, step, layer) and takes its own rows and columns of
it. So micro-batches and every strategy equal `single`, and a resumed run equals one that never stopped. The
price is that each rank draws the whole batch; `Dropout` keeps that cheap.

B rows of this process, N rows of the batch, D width.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of a forward pass in training: the run's seed, the step, and its rows within the batch."""

    seed: int
    step: int
    first_row: int
    batch_rows: int


def derived_seed(*parts: int) -> int:
    """A seed that differs if one of the parts differs, and is the same on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class HeldMask:
    """The draws of a dropout in a captured step, which holds addresses, not values.

    Before each step `Dropout.draw` writes here what a step that is not captured would have drawn.
    """

    draws_NW: Tensor | None = None


class _MaskedScale(torch.autograd.Function):
    """x * mask * scale in one pass, and so its gradient; as torch's own dropout, it rounds once."""

    @staticmethod
    def forward(ctx: Any, x_BD: Tensor, mask_BD: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask_BD)
        ctx.scale = scale
        return torch.ops.aten.native_dropout_backward(x_BD, mask_BD, scale)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient_BD: Tensor) -> tuple[Tensor, None, None]:
        (mask_BD,) = ctx.saved_tensors
        return torch.ops.aten.native_dropout_backward(gradient_BD, mask_BD, ctx.scale), None, None


class Dropout(nn.Module):
    """Sets a share `p` of the values to zero and scales up the rest; outside training it does nothing.

    Eight values share one draw, one byte each: on a CPU, one random number per value takes longer than the
    layers around it. So `p` is rounded to 1/256, and the scale follows the rounded rate. uint8 `clamp` and
    `sub_` replace a comparison because torch's booleans are slow on a CPU.

    `layer` makes the masks of a network's dropouts differ. `shard` is (index, number of shards) if the last
    dimension is cut over ranks.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.layer = 0
        self.shard = (0, 1)
        self.place: Place | None = None
        self.held: HeldMask | None = None
        self._dropped = min(round(p * 256), 255)

    def scale_to(self, factor: float) -> None:
        """Drop `factor` times `p` from now on."""
        self._dropped = min(round(self.p * factor * 256), 255)

    @property
    def drops(self) -> bool:
        return round(self.p * 256) > 0

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x_BD: Tensor, /, activation: nn.Module | None = None) -> Tensor:
        """What is kept of `activation`'s values, or of `x_BD` itself."""
        if not self.training or self._dropped == 0:
            return x_BD if activation is None else activation(x_BD)
        draws_NW = self._drawn(x_BD)
        if x_BD.device.type == "cpu" and type(x_BD) is Tensor:
            return self._kept(x_BD if activation is None else activation(x_BD), draws_NW)
        return self._kept_in_one_pass(x_BD, activation, draws_NW)

    def _kept(self, x_BD: Tensor, draws_NW: Tensor) -> Tensor:
        kept_BD = self._bytes(x_BD, draws_NW).clamp(self._dropped - 1, self._dropped).sub_(self._dropped - 1)
        factor_BD = kept_BD.float().mul_(256 / (256 - self._dropped))
        # Rounded after the product: a scale in bfloat16 would be too small or too large for all values alike.
        return (x_BD * factor_BD).to(x_BD.dtype)

    def _kept_in_one_pass(self, x_BD: Tensor, activation: nn.Module | None, draws_NW: Tensor) -> Tensor:
        """The same values in fewer passes over memory, which are what a GPU's time goes to.

        ReLU sets its zeros by the same mask, so neither its values nor any factors are kept for the gradient.
        """
        if activation is not None and not isinstance(activation, nn.ReLU):
            x_BD, activation = activation(x_BD), None
        kept_BD = self._bytes(x_BD, draws_NW) >= self._dropped
        if activation is not None:
            kept_BD.logical_and_(x_BD.detach() > 0)
        scale = 256 / (256 - self._dropped)
        out_BD: Tensor = _MaskedScale.apply(x_BD, kept_BD, scale)  # type: ignore[no-untyped-call]
        return out_BD

    def _whole(self, x_BD: Tensor) -> tuple[int, ...]:
        """The shape of a row over all shards."""
        return (*x_BD.shape[1:-1], x_BD.shape[-1] * self.shard[1])

    def _drawn(self, x_BD: Tensor) -> Tensor:
        """The draws of the whole batch, eight values each."""
        place = self.place
        assert place is not None  # set by the training loop before every forward pass
        draws_NW = self.held.draws_NW if self.held is not None else None
        if draws_NW is None:
            words = -(-math.prod(self._whole(x_BD)) // 8)
            draws_NW = torch.empty((place.batch_rows, words), dtype=torch.int64, device=x_BD.device)
            self._fill(draws_NW, place)
            if self.held is not None:
                self.held.draws_NW = draws_NW
        return draws_NW

    def _bytes(self, x_BD: Tensor, draws_NW: Tensor) -> Tensor:
        """One byte for each of these values."""
        place, (index, shards), whole = self.place, self.shard, self._whole(x_BD)
        assert place is not None
        own_BW = draws_NW[place.first_row : place.first_row + len(x_BD)]
        if len(own_BW) < len(x_BD):  # a pipeline pads its last batch with rows of weight 0
            own_BW = functional.pad(own_BW, (0, 0, 0, len(x_BD) - len(own_BW)))
        bytes_BD = own_BW.view(torch.uint8)[:, : math.prod(whole)].reshape(len(x_BD), *whole)
        return bytes_BD.chunk(shards, dim=-1)[index] if shards > 1 else bytes_BD

    def draw(self, place: Place) -> None:
        """Write what `forward` would draw at this place to the held memory, once it is there."""
        if self.held is not None and self.held.draws_NW is not None:
            self._fill(self.held.draws_NW, place)

    def _fill(self, draws_NW: Tensor, place: Place) -> None:
        generator = torch.Generator(draws_NW.device)
        generator.manual_seed(derived_seed(place.seed, place.step, self.layer))
        draws_NW.random_(-(2**63), None, generator=generator)


def dropouts(net: nn.Module) -> list[Dropout]:
    return [module for module in net.modules() if isinstance(module, Dropout)]


def number_layers(net: nn.Module) -> None:
    """Number the dropouts of a whole network, before the network is cut."""
    for number, module in enumerate(dropouts(net)):
        module.layer = number


def set_place(modules: Iterable[Dropout], place: Place) -> None:
    for module in modules:
        module.place = place
