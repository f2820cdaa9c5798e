"""Muon: momentum whose update of a matrix is made nearly orthogonal, so that all directions move alike.

After Jordan et al. ("Muon: an optimizer for hidden layers in neural networks", 2024), in float32 and with
Nesterov momentum; on tabular networks it did better than AdamW (Gorishniy et al., "Benchmarking Optimizers
for MLPs in Tabular Deep Learning", 2026). `torch.optim.Muon` computes in bfloat16, whose rounding would make
the strategies differ.

On a CPU matrices take their steps one by one. On a GPU they take them together, since starting a kernel
takes longer than its arithmetic; matrices of equal shape are then one batched product.

D outputs, E inputs of a layer, M matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
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


def step_matrices(
    parameters: Iterable[Tensor],
    state: MutableMapping[Tensor, dict[str, Any]],
    *,
    learning_rate: float | Tensor,
    weight_decay: float | Tensor,
    overflowed: Tensor | None = None,
) -> None:
    """One step for these matrices (D, E), whose momentum stays in `state`.

    Rates may be numbers on the device. Where `overflowed`, on the device, is not 0, nothing changes.
    """
    found = [matrix_DE for matrix_DE in parameters if matrix_DE.grad is not None]
    if not found:
        return
    are_cut = any(type(matrix).__name__ == "DTensor" for matrix in found)
    alone = not isinstance(learning_rate, Tensor) and (found[0].device.type == "cpu" or are_cut)
    for matrices in [[matrix_DE] for matrix_DE in found] if alone else [found]:
        _step(matrices, state, learning_rate, weight_decay, overflowed)


def _step(
    matrices: list[Tensor],
    state: MutableMapping[Tensor, dict[str, Any]],
    learning_rate: float | Tensor,
    weight_decay: float | Tensor,
    overflowed: Tensor | None,
) -> None:
    gradients = [matrix_DE.grad for matrix_DE in matrices if matrix_DE.grad is not None]
    kept = [state[matrix_DE]["momentum"] for matrix_DE in matrices]
    momenta = [old.lerp(gradient, 1 - _MOMENTUM) for old, gradient in zip(kept, gradients, strict=True)]
    updates = _all_orthogonal(
        [gradient.lerp(new, _MOMENTUM) for gradient, new in zip(gradients, momenta, strict=True)]
    )
    decayed = learning_rate * weight_decay
    if overflowed is not None:
        may = overflowed == 0
        momenta = [torch.where(may, new, old) for new, old in zip(momenta, kept, strict=True)]
        updates = [torch.where(may, update, 0.0) for update in updates]
        decayed = decayed * may
    # Nothing has changed so far, and nothing takes memory from here on.
    for matrix_DE, old, new, update_DE in zip(matrices, kept, momenta, updates, strict=True):
        old.copy_(new)
        matrix_DE.mul_(1 - decayed)
        rate = learning_rate * _scale(matrix_DE)
        if isinstance(rate, Tensor):
            matrix_DE.sub_(update_DE.mul_(rate))
        else:
            matrix_DE.add_(update_DE, alpha=-rate)
        matrix_DE.grad = None  # done: a step that ran out of memory goes on with the others


def _scale(matrix_DE: Tensor) -> float:
    outputs, inputs = matrix_DE.shape
    return float(max(1.0, outputs / inputs) ** 0.5)


def _all_orthogonal(matrices: Sequence[Tensor]) -> list[Tensor]:
    """`orthogonal` of each; those of equal shape as one batch."""
    by_shape: dict[torch.Size, list[int]] = {}
    for number, matrix_DE in enumerate(matrices):
        by_shape.setdefault(matrix_DE.shape, []).append(number)
    out: dict[int, Tensor] = {}
    for numbers in by_shape.values():
        if len(numbers) == 1:
            out[numbers[0]] = orthogonal(matrices[numbers[0]])
        else:
            stacked_MDE = torch.stack([matrices[number] for number in numbers])
            out |= zip(numbers, orthogonal(stacked_MDE).unbind(0), strict=True)
    return [out[number] for number in range(len(matrices))]


def orthogonal(matrix_DE: Tensor) -> Tensor:
    """About the nearest matrix with orthonormal rows or columns, by Newton-Schulz steps.

    Singular values from 0.003 of the norm on end between 0.8 and 1.2, which is enough. A matrix that is cut
    over ranks is put together first, and cut in the same way again. Several matrices (M, D, E) are one batch.
    """
    if type(matrix_DE).__name__ == "DTensor":  # its import takes half a second, which a single process saves
        from torch.distributed.tensor import DTensor, Replicate

        assert isinstance(matrix_DE, DTensor)
        mesh, placements = matrix_DE.device_mesh, matrix_DE.placements
        whole = orthogonal(matrix_DE.full_tensor())
        everywhere = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return everywhere.redistribute(placements=placements)
    is_tall = matrix_DE.shape[-2] > matrix_DE.shape[-1]
    x = matrix_DE.mT if is_tall else matrix_DE
    is_batch = x.ndim == 3
    norm = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) if is_batch else x.norm()
    product = torch.baddbmm if is_batch else torch.addmm
    x = x / (norm + _TINY)
    for linear, cubic, quintic in _COEFFICIENTS:
        square = x @ x.mT
        x = product(x, product(square, square, square, beta=cubic, alpha=quintic), x, beta=linear)
    return x.mT if is_tall else x
