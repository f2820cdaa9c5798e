"""How a network is spread over devices. Now: `Single`, the whole network and all of each batch on one.

The training loop knows a strategy by what it does to a network before the first step, to a batch, to
gradients, and to weights that are to be kept; which device and precision that happens in is its affair too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sparkgpu.config import NeuralConfig
from sparkgpu.errors import DeviceError
from sparkgpu.plan import LanePlan

_MOST_GRADIENT_NORM = 1.0


@dataclass(frozen=True, kw_only=True)
class Single:
    """One process on one device."""

    device: torch.device
    bfloat16: bool

    def spread(self, net: nn.Module) -> nn.Module:
        return net.to(self.device)

    def own_part(self, index_B: Tensor) -> Tensor:
        """The rows of a batch that this process computes."""
        return index_B

    def autocast(self) -> AbstractContextManager[None]:
        """Forward passes of training run in here. Weights, losses and evaluation stay float32."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16)

    def apply_gradients(self, optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
        """Clip the whole gradient's norm and take one step."""
        nn.utils.clip_grad_norm_(parameters, _MOST_GRADIENT_NORM)
        optimizer.step()

    def weights(self, net: nn.Module) -> dict[str, Tensor]:
        """A copy of the network's weights as they are now."""
        return {name: value.detach().clone() for name, value in net.state_dict().items()}


def choose_single(config: NeuralConfig, lane: LanePlan) -> Single:
    """The lane's device and the precision to train in.

    Raises `DeviceError` when the lane has a GPU that torch cannot use: never a silent turn to the CPU.
    Precision "auto" is float32 on every CPU: without AMX or AVX-512 bfloat16 was measured ten times slower,
    and a choice by processor would give one table different results on different machines.
    """
    if not lane.device.startswith("cuda"):
        return Single(device=torch.device("cpu"), bfloat16=config.precision == "bfloat16")
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise DeviceError(
            f"lane {lane.index} trains its network on {lane.device} ({lane.device_name}), but torch "
            f"{torch.__version__} finds no usable GPU (CUDA_VISIBLE_DEVICES={visible}). Install a CUDA "
            "build of torch that fits the driver, or ask for CPU lanes with --cpu-lanes 1."
        )
    supported = torch.cuda.is_bf16_supported(including_emulation=False)
    if config.precision == "bfloat16" and not supported:
        raise DeviceError(
            f'neural.precision = "bfloat16": {lane.device} ({lane.device_name}) has no bfloat16 arithmetic; '
            'set it to "float32" or "auto".'
        )
    # A lane's process sees its own GPU alone, so it is always the first.
    return Single(device=torch.device("cuda:0"), bfloat16=config.precision != "float32" and supported)
