"""AdamW, Muon for hidden matrices, and how their learning rates and weight decay change during training.

A network brings its recipe. Muon's update of a matrix is made nearly orthogonal, so that all directions move
alike. After Jordan et al. ("Muon: an optimizer for hidden layers in neural networks", 2024), in float32 and
with Nesterov momentum; on tabular networks it did better than AdamW (Gorishniy et al., "Benchmarking
Optimizers for MLPs in Tabular Deep Learning", 2026). `torch.optim.Muon` computes in bfloat16, whose rounding
would make the strategies differ.

D outputs, E inputs of a layer.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
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
            for matrix_DE in group["params"] if group["muon"] else ():
                step_matrix(
                    matrix_DE,
                    self.state[matrix_DE],
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
