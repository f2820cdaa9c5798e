"""Matrix products of layers. On a CPU under autocast they are ours; everywhere else they are torch's own.

oneDNN, which computes those, sums a product in another order with another number of threads, and a network
gets more threads when the trees are done. So ours keep the number of threads with which training began, and
a run stays repeatable to the last bit.

B rows, D inputs and E outputs of a layer, M members.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_kept: ContextVar[int | None] = ContextVar("threads of products", default=None)


@contextmanager
def products_on(threads: int) -> Iterator[None]:
    """Inside, and in the gradients of what is computed inside, products use so many threads."""
    token = _kept.set(threads)
    try:
        yield
    finally:
        _kept.reset(token)


@contextmanager
def threads_set(threads: int | None) -> Iterator[None]:
    """Use so many threads for everything inside; None leaves their number."""
    before = torch.get_num_threads()
    if threads in (None, before):
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def linear(x_BD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    """(B, E), or (B, M, E) of (B, M, D)."""
    if not _is_ours(x_BD, weight_ED):
        return functional.linear(x_BD, weight_ED, bias_E)
    out_NE: Tensor = _Linear.apply(x_BD.flatten(0, -2), weight_ED, bias_E)  # type: ignore[no-untyped-call]
    return out_NE.view(*x_BD.shape[:-1], -1)


def batched(x_MBD: Tensor, weight_MDE: Tensor) -> Tensor:
    """(M, B, E): a product for each member."""
    if not _is_ours(x_MBD, weight_MDE):
        return x_MBD @ weight_MDE
    out_MBE: Tensor = _Batched.apply(x_MBD, weight_MDE)  # type: ignore[no-untyped-call]
    return out_MBE


def is_reduced(x: Tensor) -> bool:
    """Whether products of this tensor are computed in autocast's format."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


class Linear(nn.Linear):
    """torch's own layer, with our product."""

    def forward(self, x_BD: Tensor) -> Tensor:
        return linear(x_BD, self.weight, self.bias)


def _is_ours(x: Tensor, weight: Tensor) -> bool:
    if type(x) is not Tensor or type(weight) not in (Tensor, nn.Parameter):  # sharded, or without memory
        return False
    return x.device.type == "cpu" and is_reduced(x) and not torch.compiler.is_compiling()


def _reduced(*tensors: Tensor) -> list[Tensor]:
    dtype = torch.get_autocast_dtype("cpu")
    return [tensor.to(dtype) for tensor in tensors]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
        x_BD, weight_ED = _reduced(x_BD, weight_ED)
        ctx.save_for_backward(x_BD, weight_ED)
        ctx.threads, ctx.has_bias = _kept.get(), bias_E is not None
        with threads_set(ctx.threads):
            return functional.linear(x_BD, weight_ED, None if bias_E is None else _reduced(bias_E)[0])

    @staticmethod
    def backward(ctx: Any, gradient_BE: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        x_BD, weight_ED = ctx.saved_tensors
        with threads_set(ctx.threads):
            of_x_BD = gradient_BE @ weight_ED if ctx.needs_input_grad[0] else None
            of_weight_ED = gradient_BE.t() @ x_BD
        of_bias_E = gradient_BE.sum(0).float() if ctx.has_bias else None
        return of_x_BD, of_weight_ED.float(), of_bias_E


class _Batched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_MBD: Tensor, weight_MDE: Tensor) -> Tensor:
        x_MBD, weight_MDE = _reduced(x_MBD.contiguous(), weight_MDE)  # oneDNN copies what is not in one piece
        ctx.save_for_backward(x_MBD, weight_MDE)
        ctx.threads = _kept.get()
        with threads_set(ctx.threads):
            return x_MBD @ weight_MDE

    @staticmethod
    def backward(ctx: Any, gradient_MBE: Tensor) -> tuple[Tensor, Tensor]:
        x_MBD, weight_MDE = ctx.saved_tensors
        gradient_MBE = gradient_MBE.contiguous()
        with threads_set(ctx.threads):
            return gradient_MBE @ weight_MDE.mT, (x_MBD.mT @ gradient_MBE).float()
