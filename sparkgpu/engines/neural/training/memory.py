"""What happens when a device's memory does not hold a step: smaller micro-batches, the same batch.

A step's gradient is the sum over its micro-batches, so that halving them changes memory and speed and, up to
rounding, nothing else; weights change only after the last of them, so that a step can be tried again.
"""

from __future__ import annotations

import gc

import torch

from sparkgpu.errors import TrialError


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the host in torch's hands, had no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    )


def release(device: torch.device) -> None:
    """Give back what the failed step left."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def halved(micro_rows: int) -> int:
    """The next smaller micro-batch. Raises `TrialError` when a single row does not fit."""
    if micro_rows <= 1:
        raise TrialError(
            "the network does not fit the device's memory, even with one row at a time: lower neural.hidden, "
            'or spread it with neural.strategy = "fsdp".'
        )
    return -(-micro_rows // 2)
