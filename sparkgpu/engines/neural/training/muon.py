"""Muon: momentum whose update of a matrix is made nearly orthogonal, so that all directions move alike.

After Jordan et al. ("Muon: an optimizer for hidden layers in neural networks", 2024), in float32 and with
Nesterov momentum; on tabular networks it did better than AdamW (Gorishniy et al., "Benchmarking Optimizers
for MLPs in Tabular Deep Learning", 2026). `torch.optim.Muon` computes in bfloat16, whose rounding would make
the strategies differ.

D outputs, E inputs of a layer.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

import torch
from torch import Tensor

_MOMENTUM = 0.95
_STEPS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_TINY = 1e-7


def step_matrices(
    parameters: Iterable[Tensor],
    state: MutableMapping[Tensor, dict[str, Any]],
    *,
    learning_rate: float,
    weight_decay: float,
) -> None:
    """One step for these matrices (D, E), whose momentum stays in `state`."""
    for matrix_DE in parameters:
        gradient_DE = matrix_DE.grad
        if gradient_DE is None:
            continue
        own = state[matrix_DE]
        if "momentum" not in own:
            own["momentum"] = torch.zeros_like(matrix_DE)
        momentum_DE = own["momentum"].lerp(gradient_DE, 1 - _MOMENTUM)
        update_DE = orthogonal(gradient_DE.lerp(momentum_DE, _MOMENTUM))
        outputs, inputs = matrix_DE.shape
        # Nothing has changed so far, and nothing takes memory from here on.
        own["momentum"].copy_(momentum_DE)
        matrix_DE.mul_(1 - learning_rate * weight_decay)
        matrix_DE.add_(update_DE, alpha=-learning_rate * max(1.0, outputs / inputs) ** 0.5)
        matrix_DE.grad = None  # done: a step that ran out of memory goes on with the others


def orthogonal(matrix_DE: Tensor) -> Tensor:
    """About the nearest matrix with orthonormal rows or columns, by Newton-Schulz steps.

    Singular values end between 0.7 and 1.2, which is enough. A matrix that is cut over ranks is put together
    first, and cut in the same way again.
    """
    if type(matrix_DE).__name__ == "DTensor":  # its import takes half a second, which a single process saves
        from torch.distributed.tensor import DTensor, Replicate

        assert isinstance(matrix_DE, DTensor)
        mesh, placements = matrix_DE.device_mesh, matrix_DE.placements
        whole = orthogonal(matrix_DE.full_tensor())
        everywhere = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return everywhere.redistribute(placements=placements)
    is_tall = matrix_DE.shape[0] > matrix_DE.shape[1]
    x = matrix_DE.t() if is_tall else matrix_DE
    x = x / (x.norm() + _TINY)
    linear, cubic, quintic = _COEFFICIENTS
    for _ in range(_STEPS):
        square = x @ x.t()
        x = torch.addmm(x, torch.addmm(square, square, square, beta=cubic, alpha=quintic), x, beta=linear)
    return x.t() if is_tall else x
