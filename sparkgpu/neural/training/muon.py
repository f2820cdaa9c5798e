"""Muon: momentum whose update of a matrix is made nearly orthogonal, so that all directions move alike.

After Jordan et al. ("Muon: an optimizer for hidden layers in neural networks", 2024), in float32 and with
Nesterov momentum; on tabular networks it did better than AdamW (Gorishniy et al., "Benchmarking Optimizers
for MLPs in Tabular Deep Learning", 2026). `torch.optim.Muon` computes in bfloat16, whose rounding would make
the strategies differ.

D outputs, E inputs of a layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_MOMENTUM = 0.95
# Each polynomial is the one that brings the singular values which the one before left between two bounds
# closest to 1 (Amsel et al., "The Polar Express", 2025); found by a linear program for 0.003 to 1 at first.
_COEFFICIENTS = (
    (8.3837, -24.7659, 18.3571), (4.0434, -3.0114, 0.5695),
    (3.5056, -2.6267, 0.5257), (2.4901, -1.8343, 0.4368),
)  # fmt: skip
_TINY = 1e-7


def step_matrix(
    matrix_DE: Tensor,
    state: dict[str, Any],
    *,
    learning_rate: float | Tensor,
    weight_decay: float | Tensor,
    overflowed: Tensor | None = None,
) -> None:
    """One step for a matrix (D, E), whose momentum stays in `state`; without a gradient nothing happens.

    Rates may be numbers on the device. Where `overflowed`, on the device, is not 0, nothing changes.
    """
    if matrix_DE.grad is None:
        return
    momentum = state["momentum"].lerp(matrix_DE.grad, 1 - _MOMENTUM)
    update_DE = orthogonal(matrix_DE.grad.lerp(momentum, _MOMENTUM))
    decayed = learning_rate * weight_decay
    if overflowed is not None:
        may = overflowed == 0
        momentum = torch.where(may, momentum, state["momentum"])
        update_DE = torch.where(may, update_DE, 0.0)
        decayed = decayed * may
    outputs, inputs = matrix_DE.shape
    rate = learning_rate * max(1.0, outputs / inputs) ** 0.5
    state["momentum"].copy_(momentum)
    matrix_DE.mul_(1 - decayed)
    if isinstance(rate, Tensor):
        matrix_DE.sub_(update_DE.mul_(rate))
    else:
        matrix_DE.add_(update_DE, alpha=-rate)


def orthogonal(matrix_DE: Tensor) -> Tensor:
    """About the nearest matrix with orthonormal rows or columns, by Newton-Schulz steps.

    Singular values from 0.003 of the norm on end between 0.8 and 1.2, which is enough. A matrix that is cut
    over ranks is put together first, and cut in the same way again.
    """
    if type(matrix_DE).__name__ == "DTensor":  # its import takes half a second, which a single process saves
        from torch.distributed.tensor import DTensor, Replicate

        assert isinstance(matrix_DE, DTensor)
        mesh, placements = matrix_DE.device_mesh, matrix_DE.placements
        whole = orthogonal(matrix_DE.full_tensor())
        everywhere = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return everywhere.redistribute(placements=placements)
    is_tall = matrix_DE.shape[0] > matrix_DE.shape[1]
    x = matrix_DE.mT if is_tall else matrix_DE
    x = x / (x.norm() + _TINY)
    for linear, cubic, quintic in _COEFFICIENTS:
        square = x @ x.mT
        x = torch.addmm(x, torch.addmm(square, square, square, beta=cubic, alpha=quintic), x, beta=linear)
    return x.mT if is_tall else x
