"""Handles what does not fit a device's memory: smaller micro-batches, and smaller chunks to evaluate.

A step's gradient is the sum over its micro-batches. So halving them changes only memory, speed and rounding.
Weights change only after the last micro-batch, so a step can be tried again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from sparkgpu.core.errors import TrialError

T = TypeVar("T")

_SHORT_S = 5.0
_LOOK_EVERY_S = 0.1
_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
"""In errors that are no `torch.OutOfMemoryError`: the libraries of CUDA allocate for themselves."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or torch on the host, ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)
    )


def release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def wait_for_room(device: torch.device, beat: Callable[[], None]) -> bool:
    """Wait a short while for memory that others took for one; False where that cannot be, on a CPU.

    XGBoost takes up to 80 % of what is free while it makes its bins, which takes seconds.
    """
    if device.type != "cuda":
        return False
    before, _ = torch.cuda.mem_get_info(device)
    until = time.monotonic() + _SHORT_S
    while time.monotonic() < until and torch.cuda.mem_get_info(device)[0] <= before:
        beat()
        time.sleep(_LOOK_EVERY_S)
    return True


_WAY_OUT = 'lower neural.hidden, or spread it with neural.strategy = "fsdp".'
TOO_LARGE = f"the network and its optimizer do not fit the device's memory: {_WAY_OUT}"


def halved(micro_rows: int, way_out: str = _WAY_OUT) -> int:
    """The next smaller micro-batch or chunk. Raises `TrialError` if a single row does not fit."""
    if micro_rows <= 1:
        raise TrialError(
            f"the network does not fit the device's memory, even with one row at a time: {way_out}"
        )
    return -(-micro_rows // 2)


def in_chunks(
    compute: Callable[[slice], T], rows: int, size: int, device: torch.device, way_out: str = _WAY_OUT
) -> Iterator[T]:
    """What `compute` makes of so many rows, `size` at once, or fewer from then on if memory runs out.

    Without any rows it computes none, once. Raises `TrialError` if not even one fits.
    """
    begin, last = 0, max(rows, 1)
    while begin < last:
        part = slice(begin, begin + size)
        try:
            found = compute(part)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        else:
            yield found
            begin += size
            continue
        release(device)
        size = halved(min(size, last - begin), way_out)


class NeedsSmallerBatches(Exception):
    """One of several ranks ran out of memory, so all must start again from the checkpoint."""

    def __init__(self, micro_rows: int, note: str) -> None:
        super().__init__(note)
        self.micro_rows = micro_rows
        self.note = note
