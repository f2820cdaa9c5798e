"""Handles a step that does not fit a device's memory: smaller micro-batches, the same batch.

A step's gradient is the sum over its micro-batches. So halving them changes only memory, speed and rounding.
Weights change only after the last micro-batch, so a step can be tried again.
"""

from __future__ import annotations

import gc

import torch

from sparkgpu.errors import TrialError


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or torch on the host, ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    )


def release(device: torch.device) -> None:
    """Free the memory of the failed step."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def halved(micro_rows: int) -> int:
    """The next smaller micro-batch. Raises `TrialError` if a single row does not fit."""
    if micro_rows <= 1:
        raise TrialError(
            "the network does not fit the device's memory, even with one row at a time: lower neural.hidden, "
            'or spread it with neural.strategy = "fsdp".'
        )
    return -(-micro_rows // 2)
