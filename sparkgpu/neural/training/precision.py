"""The number format in which a network computes: from the configuration, or chosen by the device.

Weights, losses, evaluation and predictions are always float32; the format applies to the forward and backward
passes of training, and products inside a step of Muon follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from sparkgpu.core.config.model_keys import NeuralConfig
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.processor import has_amx
from sparkgpu.core.plan.devices import check_precision, reduces_on_cpu

_SMALL = 128  # rows and columns; a product of such matrices takes as long in float32


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

    def autocast(self) -> AbstractContextManager[object]:
        """The context for forward passes of training."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device_type, dtype=self.dtype)

    @contextmanager
    def passes(self) -> Iterator[None]:
        """The context of forward and backward passes of training, outside of which no product is in TF32."""
        _allow_tf32(self.tf32)
        try:
            yield
        finally:
            _allow_tf32(False)

    @contextmanager
    def in_steps(self, matrices: Sequence[Tensor]) -> Iterator[None]:
        """The context in which an optimizer multiplies these float32 matrices, in float32 if passes are.

        On a GPU products are in TF32, on a CPU large ones in this format; small ones gain nothing there.
        """
        if self.device_type == "cuda":
            _allow_tf32(self.tf32 or self.dtype is not None)
            try:
                yield
            finally:
                _allow_tf32(False)
            return
        reduces = self.dtype is torch.bfloat16
        if not (reduces and any(min(matrix.shape) > _SMALL for matrix in matrices)):
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    @property
    def keeps_threads(self) -> bool:
        """Whether more threads would change digits: oneDNN sums products in another order then."""
        return self.device_type == "cpu" and self.dtype is not None

    def scaler(self) -> torch.amp.GradScaler | None:
        return torch.amp.GradScaler(self.device_type) if self.dtype is torch.float16 else None


def choose_precision(
    config: NeuralConfig, device: torch.device, device_name: str, strategy: str = "single"
) -> Precision:
    """What `neural.precision` means on this device. Switches TF32 off for the whole process.

    "auto" is bfloat16 on a GPU that supports it, else float16 (float32 for a strategy that cannot scale
    losses). On a CPU it is bfloat16 for a network that gains by it if the processor has AMX, else float32.
    Raises `DeviceError` if the device does not support the format.
    """
    asked = config.precision
    if device.type == "cpu":
        check_precision(config, device.type)
        reduces = asked == "bfloat16" or reduces_on_cpu(config, has_amx=has_amx())
        return Precision(device_type="cpu", dtype=torch.bfloat16 if reduces else None)
    supported = torch.cuda.is_bf16_supported(including_emulation=False)
    if asked == "bfloat16" and not supported:
        raise DeviceError(
            f'neural.precision = "bfloat16": {device} ({device_name}) does not support bfloat16; '
            'set it to "float16", "float32" or "auto".'
        )
    _allow_tf32(False)
    scales = STRATEGIES.find(strategy).scales_losses
    dtype = {
        "auto": torch.bfloat16 if supported else torch.float16 if scales else None,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }.get(asked)
    return Precision(device_type="cuda", dtype=dtype, tf32=asked == "tf32")


def _allow_tf32(allowed: bool) -> None:
    """Set for every kind of product, since the default differs between torch versions."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
