"""AdamW, Muon for hidden matrices, and how their learning rates and weight decay change during training.

A network brings its recipe.
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
from sparkgpu.neural.training.muon import step_matrix
from sparkgpu.neural.training.objective import Objective

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
        if not self.clips_predictions:
            return fitted
        return replace(fitted, low=float(label_N.min()), high=float(label_N.max()))


SCHEDULES: dict[str, Schedule] = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    # Four cycles, each twice as long as the previous one (Holzmüller et al., "Better by Default", 2024).
    "coslog4": lambda done: 0.5 * (1 - math.cos(2 * math.pi * math.log2(1 + 15 * done))),
}


class HeldRates:
    """Learning rate and weight decay of each group in a device's memory, where a captured step reads them.

    A capture holds the numbers that Python gives to a kernel, and would repeat those of its first step.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], device: torch.device) -> None:
        self._held = [{key: torch.zeros((), device=device) for key in ("lr", "weight_decay")} for _ in groups]

    def set(self, groups: Sequence[dict[str, Any]]) -> None:
        """For the next step. The device gets them as arguments of a kernel, so nothing waits for it."""
        for held, group in zip(self._held, groups, strict=True):
            for key, value in held.items():
                value.fill_(group[key])

    def of(self, groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The groups with rates on the device.

        The fused kernel of AdamW takes no weight decay from there, so the share to take off each parameter
        before the step is `decayed`.
        """
        asked = [
            {**group, **held, "capturable": True} for group, held in zip(groups, self._held, strict=True)
        ]
        for group in asked:
            if not group["muon"]:
                group |= {"weight_decay": 0.0, "decayed": group["lr"] * group["weight_decay"]}
        return asked


def _decay(parameters: list[Tensor], share: Tensor) -> None:
    torch._foreach_sub_(parameters, torch._foreach_mul(parameters, share))


class Optimizer(torch.optim.AdamW):
    """AdamW, and Muon for the groups with `muon`.

    Without the wrappers that exclude torch.compile: the first call of such a wrapper imports all of
    torch._dynamo (0.6 s, 30 MB).
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    found_inf: Tensor | None = None
    """Set by the scaler of float16: whether a gradient overflowed, so that nothing may change."""
    held: HeldRates | None = None
    """The rates of a step that is captured, in place of those of the groups."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        asked = groups if self.held is None else self.held.of(groups)
        try:
            self.param_groups = [group for group in asked if not group["muon"]]
            for group in self.param_groups:
                if "decayed" in group:
                    _decay([p for p in group["params"] if p.grad is not None], group["decayed"])
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
