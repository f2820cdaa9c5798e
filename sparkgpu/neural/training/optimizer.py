"""AdamW, Muon for hidden matrices, and how their learning rates and weight decay change during training.

A network brings its recipe. Muon's update of a matrix is made nearly orthogonal, so that all directions move
alike. After Jordan et al. ("Muon: an optimizer for hidden layers in neural networks", 2024), with Nesterov
momentum; on tabular networks it did better than AdamW (Gorishniy et al., "Benchmarking Optimizers for MLPs in
Tabular Deep Learning", 2026). Its matrices stay in float32 (`Precision.in_steps`): `torch.optim.Muon` makes
them bfloat16, whose rounding would make the strategies differ.

D outputs, E inputs of a layer.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.training.objective import Objective

_MOMENTUM = 0.95
# Each polynomial is the one that brings the singular values which the one before left between two bounds
# closest to 1 (Amsel et al., "The Polar Express", 2025); found by a linear program for 0.003 to 1 at first.
_COEFFICIENTS = (
    (8.3837, -24.7659, 18.3571), (4.0434, -3.0114, 0.5695),
    (3.5056, -2.6267, 0.5257), (2.4901, -1.8343, 0.4368),
)  # fmt: skip
_TINY = 1e-7
_SMALL = 2**20  # values of a matrix whose products a GPU starts longer than it computes them

Schedule = Callable[[float], float]
"""Maps the share of training done (0 to 1) to a factor of the initial value."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The training settings of an architecture's authors that the configuration does not name.

    `weight_decay` and `dropout` are schedules. `factors` gives the factors of learning rate and weight decay
    for a parameter's name; `is_hidden_matrix` says for which names Muon may be used. With classes,
    `keeps_least_error` keeps the last epoch with the fewest wrong classes on the validation rows in place of
    the least loss. `drops_partial_batch` leaves out an epoch's last batch if it is smaller than the others.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    most_gradient_norm: float | None = 1.0
    weight_decay: Schedule | None = None
    dropout: Schedule | None = None
    factors: Callable[[str], tuple[float, float]] = lambda name: (1.0, 1.0)
    is_hidden_matrix: Callable[[str], bool] = lambda name: False
    label_smoothing: float = 0.0
    clips_predictions: bool = False
    keeps_least_error: bool = False
    drops_partial_batch: bool = False

    def objective(self, fitted: Objective, label_N: NDArray[Any]) -> Objective:
        """The objective of this recipe, from the one fitted on the training labels."""
        if fitted.task != "regression":
            return replace(fitted, label_smoothing=self.label_smoothing)
        if not self.clips_predictions or fitted.low is not None:
            return fitted
        return replace(fitted, low=float(label_N.min()), high=float(label_N.max()))


SCHEDULES: dict[str, Schedule] = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    # Four cycles, each twice as long as the previous one (Holzmüller et al., "Better by Default", 2024).
    "coslog4": lambda done: 0.5 * (1 - math.cos(2 * math.pi * math.log2(1 + 15 * done))),
}


class Optimizer(torch.optim.AdamW):
    """AdamW, and Muon for the groups with `muon`.

    Without the wrappers that exclude torch.compile: the first call of such a wrapper imports all of
    torch._dynamo (0.6 s, 30 MB).
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    # Adam's own also completes the states of older versions, and takes that of Muon for one of them.
    __setstate__ = torch.optim.Optimizer.__setstate__
    found_inf: Tensor | None = None
    """Set by the scaler of float16: whether a gradient overflowed, so that nothing may change."""
    held: Sequence[Tensor] | None = None
    """The groups' learning rates on the device, where a captured step reads them."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        asked = groups
        if self.held is not None:
            pairs = zip(groups, self.held, strict=True)
            asked = [{**group, "lr": rate, "capturable": True} for group, rate in pairs]
        try:
            self.param_groups = [group for group in asked if not group["muon"]]
            loss = _adamw_step(self, closure)
        finally:
            self.param_groups = groups
        for group in asked:
            matrices = [matrix for matrix in group["params"] if group["muon"] and matrix.grad is not None]
            for together in in_batches(matrices):
                step_matrices(
                    together,
                    [self.state[matrix_DE] for matrix_DE in together],
                    learning_rate=group["lr"],
                    weight_decay=group["weight_decay"],
                    overflowed=self.found_inf,
                )
        return loss


_adamw_step = inspect.unwrap(torch.optim.AdamW.step)


def learns_by_muon(name: str, config: NeuralParameters, recipe: Recipe) -> bool:
    """Whether the parameter of this name gets Muon."""
    return config.muon_learning_rate > 0 and recipe.is_hidden_matrix(name)


def make_optimizer(net: nn.Module, config: NeuralParameters, recipe: Recipe) -> Optimizer:
    """AdamW over the network's parameters, grouped by their factors (kept as `*_factor` in each group).

    Hidden matrices are left to Muon if it has a learning rate. Sharded and whole tensors go to separate
    groups, since one fused kernel cannot update both.
    """
    groups: dict[tuple[float, float, bool, type], dict[str, object]] = {}
    for name, parameter in net.named_parameters():
        muon = learns_by_muon(name, config, recipe)
        rate, decay = recipe.factors(name)
        if muon:
            rate *= config.muon_learning_rate / config.learning_rate
        group = groups.setdefault(
            (rate, decay, muon, type(parameter.data)),
            {"params": [], "learning_rate_factor": rate, "weight_decay_factor": decay, "muon": muon},
        )
        group["params"].append(parameter)  # type: ignore[attr-defined]
    # One fused kernel for all parameters of a group; it measured fastest on the CPU.
    optimizer = Optimizer(list(groups.values()), betas=recipe.betas, fused=True)
    set_progress(optimizer, config, recipe, 0.0)
    _allocate(optimizer)
    return optimizer


def _allocate(optimizer: torch.optim.AdamW) -> None:
    """Make the moments now, as AdamW and Muon would at their first step: a step takes no lasting memory."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if group["muon"]:
                state["momentum"] = torch.zeros_like(parameter)
            else:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)


def set_progress(
    optimizer: torch.optim.Optimizer, config: NeuralParameters, recipe: Recipe, done: float
) -> None:
    """Set learning rates and weight decays for a step at share `done` of the training."""
    rate = config.learning_rate * SCHEDULES[config.schedule](done)
    decay = config.weight_decay * (recipe.weight_decay(done) if recipe.weight_decay is not None else 1.0)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["learning_rate_factor"]
        group["weight_decay"] = decay * group["weight_decay_factor"]


def in_batches(matrices: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Matrices that make one step together: on a GPU, whose time goes to starting them, all small ones."""
    small = [matrix for matrix in matrices if _is_started_longer(matrix)]
    if small:
        yield small
    yield from ([matrix] for matrix in matrices if not _is_started_longer(matrix))


def _is_started_longer(matrix_DE: Tensor) -> bool:
    on_cpu = matrix_DE.device.type == "cpu" and type(matrix_DE.data) is Tensor
    return not on_cpu and matrix_DE.numel() <= _SMALL


def step_matrices(
    matrices: Sequence[Tensor],
    states: Sequence[dict[str, Any]],
    *,
    learning_rate: float | Tensor,
    weight_decay: float | Tensor,
    overflowed: Tensor | None = None,
) -> None:
    """One step for matrices (D, E) with gradients, whose momenta stay in their `states`.

    Rates may be numbers on the device. Where `overflowed`, on the device, is not 0, nothing changes.
    """
    gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
    kept = [state["momentum"] for state in states]
    momenta = [own.lerp(gradient, 1 - _MOMENTUM) for own, gradient in zip(kept, gradients, strict=True)]
    ahead = [gradient.lerp(own, _MOMENTUM) for own, gradient in zip(momenta, gradients, strict=True)]
    updates = orthogonal(ahead)
    decayed = learning_rate * weight_decay
    if overflowed is not None:
        may = overflowed == 0
        momenta = [torch.where(may, own, before) for own, before in zip(momenta, kept, strict=True)]
        updates = [torch.where(may, update_DE, 0.0) for update_DE in updates]
        decayed = decayed * may
    for matrix_DE, own, momentum, update_DE in zip(matrices, kept, momenta, updates, strict=True):
        outputs, inputs = matrix_DE.shape
        rate = learning_rate * max(1.0, outputs / inputs) ** 0.5
        own.copy_(momentum)
        matrix_DE.mul_(1 - decayed)
        if isinstance(rate, Tensor):
            matrix_DE.sub_(update_DE.mul_(rate))
        else:
            matrix_DE.add_(update_DE, alpha=-rate)


def orthogonal(matrices: Sequence[Tensor]) -> list[Tensor]:
    """For each (D, E) about the nearest matrix with orthonormal rows or columns, by Newton-Schulz steps.

    Singular values from 0.003 of the norm on end between 0.8 and 1.2, which is enough. Several matrices are
    multiplied at once, with zeros up to the size of the largest, which stay zeros. One that is cut over ranks
    is put together first, and cut in the same way again.
    """
    whole = [_whole(matrix_DE) for matrix_DE in matrices]
    wide = [x.mT if x.shape[0] > x.shape[1] else x for x in whole]
    if len(wide) == 1:
        found = [_newton_schulz(wide[0])]
    else:
        x_NDE = wide[0].new_zeros(len(wide), max(map(len, wide)), max(x.shape[1] for x in wide))
        places = [own[: x.shape[0], : x.shape[1]] for own, x in zip(x_NDE, wide, strict=True)]
        for place, x in zip(places, wide, strict=True):
            place.copy_(x)
        x_NDE = _newton_schulz(x_NDE)
        found = [own[: x.shape[0], : x.shape[1]] for own, x in zip(x_NDE, wide, strict=True)]
    back = [x.mT if x.shape != own.shape else x for x, own in zip(found, whole, strict=True)]
    return [_cut_as(own, x) for own, x in zip(matrices, back, strict=True)]


def _newton_schulz(x: Tensor) -> Tensor:
    """Of one wide matrix (D, E), or of several (N, D, E)."""
    product = torch.addmm if x.ndim == 2 else torch.baddbmm
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + _TINY)
    for linear, cubic, quintic in _COEFFICIENTS:
        square = x @ x.mT
        x = product(x, product(square, square, square, beta=cubic, alpha=quintic), x, beta=linear)
    return x


def _whole(matrix_DE: Tensor) -> Tensor:
    if type(matrix_DE).__name__ != "DTensor":  # its import takes half a second, which a single process saves
        return matrix_DE
    from torch.distributed.tensor import DTensor

    assert isinstance(matrix_DE, DTensor)
    return matrix_DE.full_tensor()


def _cut_as(matrix_DE: Tensor, whole_DE: Tensor) -> Tensor:
    """`whole_DE` cut over ranks as `matrix_DE` is, if it is."""
    if whole_DE.__class__ is matrix_DE.__class__:
        return whole_DE
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(matrix_DE, DTensor)
    mesh, placements = matrix_DE.device_mesh, matrix_DE.placements
    everywhere = DTensor.from_local(whole_DE, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return everywhere.redistribute(placements=placements)
