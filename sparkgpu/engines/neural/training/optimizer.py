"""AdamW, Muon for hidden matrices, and how their learning rates and weight decay change during training.

A network brings its recipe.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparkgpu.config.parameters import NeuralParameters
from sparkgpu.engines.neural.training.memory import TOO_LARGE, is_out_of_memory
from sparkgpu.engines.neural.training.muon import step_matrices
from sparkgpu.engines.neural.training.objective import Objective
from sparkgpu.errors import TrialError

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
    weight_decay: Schedule = lambda done: 1.0
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


class _Optimizer(torch.optim.AdamW):
    """AdamW, and Muon for the groups with `muon`.

    Without the wrappers that exclude torch.compile: the first call of such a wrapper imports all of
    torch._dynamo (0.6 s, 30 MB).
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    found_inf: Tensor | None = None
    """Set by the scaler of float16: whether a gradient overflowed, so that nothing may change."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        try:
            self.param_groups = [group for group in groups if not group["muon"]]
            loss = _adamw_step(self, closure)
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None  # done, as in Muon
        finally:
            self.param_groups = groups
        overflowed = self.found_inf is not None and bool(self.found_inf)
        for group in () if overflowed else groups:
            if group["muon"]:
                step_matrices(
                    group["params"],
                    self.state,
                    learning_rate=float(group["lr"]),
                    weight_decay=group["weight_decay"],
                )
        return loss


_adamw_step = inspect.unwrap(torch.optim.AdamW.step)


def make_optimizer(module: nn.Module, config: NeuralParameters, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW over the module's parameters, grouped by their factors (kept as `*_factor` in each group).

    Hidden matrices are left to Muon if it has a learning rate. Sharded and whole tensors go to separate
    groups, since one fused kernel cannot update both. Raises `TrialError` if the moments do not fit the
    device.
    """
    groups: dict[tuple[float, float, bool, type], dict[str, object]] = {}
    for name, parameter in module.named_parameters():
        plain = name.replace("_orig_mod.", "").replace("module.", "")
        muon = config.muon_learning_rate > 0 and recipe.is_hidden_matrix(plain)
        rate, decay = recipe.factors(plain)
        if muon:
            rate *= config.muon_learning_rate / config.learning_rate
        group = groups.setdefault(
            (rate, decay, muon, type(parameter.data)),
            {"params": [], "learning_rate_factor": rate, "weight_decay_factor": decay, "muon": muon},
        )
        group["params"].append(parameter)  # type: ignore[attr-defined]
    # One fused kernel for all parameters of a group; it measured fastest on the CPU.
    optimizer = _Optimizer(list(groups.values()), betas=recipe.betas, fused=True)
    set_progress(optimizer, config, recipe, 0.0)
    _allocate(optimizer)
    return optimizer


def _allocate(optimizer: torch.optim.AdamW) -> None:
    """Make the moments now, as AdamW and Muon would at their first step: a step takes no lasting memory."""
    try:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state = optimizer.state[parameter]
                if group["muon"]:
                    state["momentum"] = torch.zeros_like(parameter)
                else:
                    state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise TrialError(TOO_LARGE) from None


def set_progress(
    optimizer: torch.optim.Optimizer, config: NeuralParameters, recipe: Recipe, done: float
) -> None:
    """Set learning rates and weight decays for a step at share `done` of the training."""
    rate = config.learning_rate * SCHEDULES[config.schedule](done)
    decay = config.weight_decay * recipe.weight_decay(done)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["learning_rate_factor"]
        group["weight_decay"] = decay * group["weight_decay_factor"]
