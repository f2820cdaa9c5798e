"""Kernels, bytes and floating-point operations of what runs inside a block, also on tensors without memory.

A kernel is one operation of torch that is no view. A product that adds a whole matrix copies that first.
Libraries may start several kernels for one operation, or several operations may stay in a cache: the figures
are arithmetic. Bytes are those that an operation reads and writes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

_GATHERS = {"index_select", "embedding", "gather"}  # which read no more than they write
_FILLS = {"random_", "zero_", "fill_", "bernoulli_"}  # which only write
_START_NOTHING = {"empty", "empty_like", "new_empty", "empty_strided", "detach", "_unsafe_view"}


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`bytes_of` and `kernels_of` count by operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels_of: Counter[str] = Counter()
        self.bytes_of: Counter[str] = Counter()
        self._flops = FlopCounterMode(display=False)

    @property
    def kernels(self) -> int:
        return self.kernels_of.total()

    @property
    def bytes(self) -> int:
        return self.bytes_of.total()

    @property
    def flops(self) -> int:
        """Of matrix products."""
        return self._flops.get_total_flops()

    def __enter__(self) -> Counted:
        self._flops.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        super().__exit__(*given)
        self._flops.__exit__(*given)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if is_view or name in _START_NOTHING or func.namespace != "aten":
            return out
        given, made = ([v for v in tree_leaves(x) if isinstance(v, Tensor)] for x in ((args, kwargs), out))
        moved = made if name in _FILLS else made * 2 if name in _GATHERS else given + made
        if name in ("addmm", "baddbmm") and args[0].shape == out.shape:
            self.kernels_of[name] += 1
            moved = [*moved, out, out]
        self.kernels_of[name] += 1
        self.bytes_of[name] += sum(tensor.nbytes for tensor in moved)
        return out
