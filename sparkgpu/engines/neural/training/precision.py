"""The number format in which a network computes: from the configuration, or chosen by the device.

Weights, losses, evaluation and predictions are always float32; the format applies to the forward and backward
passes of training.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from sparkgpu.config.models import NeuralConfig
from sparkgpu.config.registry.strategies import STRATEGIES
from sparkgpu.errors import DeviceError
from sparkgpu.plan.strategy import check_precision


@dataclass(frozen=True, kw_only=True)
class Precision:
    """`dtype` None means float32 throughout. float16 needs scaled losses, or small gradients vanish."""

    device_type: str
    dtype: torch.dtype | None
    tf32: bool = False

    def __str__(self) -> str:
        if self.dtype is None:
            return "float32" + (", TF32 matrix products" if self.tf32 else "")
        return f"{str(self.dtype).removeprefix('torch.')} autocast, float32 weights"

    def autocast(self) -> AbstractContextManager[None]:
        """The context for forward passes of training."""
        return torch.autocast(self.device_type, dtype=self.dtype, enabled=self.dtype is not None)

    def scaler(self) -> torch.amp.GradScaler | None:
        return torch.amp.GradScaler(self.device_type) if self.dtype is torch.float16 else None


def choose_precision(
    config: NeuralConfig, device: torch.device, device_name: str, strategy: str = "single"
) -> Precision:
    """What `neural.precision` means on this device. Switches TF32 on or off for the whole process.

    "auto" is bfloat16 on a GPU that supports it, else float16 (float32 for a strategy that cannot scale
    losses), and float32 on a CPU. Without AMX or AVX-512,
    bfloat16 measured ten times slower; and a choice by processor would give one table different results on
    different machines. Raises `DeviceError` if the device does not support the format.
    """
    asked = config.precision
    if device.type == "cpu":
        check_precision(config, device.type)
        return Precision(device_type="cpu", dtype=torch.bfloat16 if asked == "bfloat16" else None)
    supported = torch.cuda.is_bf16_supported(including_emulation=False)
    if asked == "bfloat16" and not supported:
        raise DeviceError(
            f'neural.precision = "bfloat16": {device} ({device_name}) does not support bfloat16; '
            'set it to "float16", "float32" or "auto".'
        )
    # Set explicitly for every kind of product, since the default differs between torch versions.
    torch.backends.cuda.matmul.allow_tf32 = asked == "tf32"
    torch.backends.cudnn.allow_tf32 = asked == "tf32"
    scales = STRATEGIES.find(strategy).scales_losses
    dtype = {
        "auto": torch.bfloat16 if supported else torch.float16 if scales else None,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }.get(asked)
    return Precision(device_type="cuda", dtype=dtype, tf32=asked == "tf32")
