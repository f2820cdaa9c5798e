"""The meaning of a network's raw outputs: the loss of each row, the watched metric, and the prediction.

The loss of a regression is the deviance of its distribution: the squared error for gaussian, that of
logarithms for lognormal; the others learn the logarithm of the mean (Dunn and Smyth, "Generalized Linear
Models With Examples in R", 2018, chapter 5). Their predictions are exponentials, in the target's unit.

A network gives M predictions of each row (1 unless it is an ensemble). Each has its own loss, so every member
learns the task by itself. The final prediction averages probabilities.

B rows, M members, C classes (1 output for regression).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sparkgpu.core.config.values import POWERS, Distribution
from sparkgpu.core.table.schema import Task
from sparkgpu.score.metrics import DEVIANCES

_ALMOST_ZERO = 1e-38  # as where a run scales its predictions


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Cross-entropy for classes; the deviance of the standardised target for regression.

    `mean` and `std` are those of the training target, so that one learning rate serves every unit; `mean` is
    that of logarithms for lognormal, and for other distributions but gaussian the logarithm of the mean.
    `smear` multiplies predictions of lognormal, whose exponentials would be too low on average.
    Predictions stay between `low` and `high` if these are given. `label_smoothing` affects only the training
    loss, and `temperature` only predictions: the logarithms of their probabilities are divided by it.
    """

    task: Task
    distribution: Distribution = "gaussian"
    mean: float = 0.0
    std: float = 1.0
    smear: float = 1.0
    low: float | None = None
    high: float | None = None
    label_smoothing: float = 0.0
    temperature: float = 1.0

    @classmethod
    def fit(
        cls,
        task: Task,
        label_N: NDArray[np.int64 | np.float64],
        weight_N: NDArray[np.float32] | None,
        distribution: Distribution = "gaussian",
    ) -> Objective:
        """Take mean and standard deviation from the training rows, weighted if they have weights."""
        if task != "regression":
            return cls(task=task)
        if distribution != "gaussian":  # an exponential must not leave what the training rows show
            if distribution == "lognormal":
                found = cls.fit(task, np.log(label_N), weight_N)
            else:
                found = cls(task=task, mean=math.log(float(np.average(label_N, weights=weight_N))))
            low, high = float(label_N.min()), float(label_N.max())
            return replace(found, distribution=distribution, low=low, high=high)
        mean = float(np.average(label_N, weights=weight_N))
        reach = float(np.abs(label_N - mean).max())
        if reach == 0:  # a constant target is not scaled
            return cls(task=task, mean=mean)
        # Divide by the greatest deviation before squaring, since squares of deviations can overflow.
        share = math.sqrt(float(np.average(np.square((label_N - mean) / reach), weights=weight_N)))
        return cls(task=task, mean=mean, std=reach * share if share > 0 else 1.0)

    @property
    def metric(self) -> str:
        if self.task != "regression":
            return "log_loss"
        return "rmse" if self.distribution == "gaussian" else DEVIANCES[self.distribution]

    @property
    def target_shape(self) -> tuple[int, ...]:
        """That of the target of one row."""
        return ()

    def targets(self, label_N: NDArray[np.int64 | np.float64]) -> Tensor:
        """Labels in the form the loss takes: class codes, or standardised values in float32."""
        if self.task != "regression":
            return torch.from_numpy(label_N)
        if self.distribution not in ("gaussian", "lognormal"):
            return torch.from_numpy((label_N / math.exp(self.mean)).astype(np.float32))
        learned_N = label_N if self.distribution == "gaussian" else np.log(label_N)
        return torch.from_numpy(((learned_N - self.mean) / self.std).astype(np.float32))

    def loss(self, outputs_BMC: Tensor, target_B: Tensor) -> Tensor:
        """The loss of each row (B,), the mean over its members; float32 for any precision of the outputs."""
        outputs_BMC = outputs_BMC.float()
        target_BM = target_B.unsqueeze(1).expand(outputs_BMC.shape[:2])
        if self.task == "regression":
            return self._deviance(outputs_BMC.squeeze(2), target_BM).mean(1)
        flat = functional.cross_entropy(
            outputs_BMC.flatten(0, 1),
            target_BM.flatten(),
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        return flat.view(target_BM.shape).mean(1)

    def loss_of_mean(self, outputs_BMC: Tensor, target_B: Tensor) -> Tensor:
        """The loss of each row (B,) with its members averaged as in `predict`; validation watches this."""
        outputs_BMC = outputs_BMC.float()
        if self.task == "regression":
            return self._deviance(self._within(outputs_BMC.mean(1).squeeze(1)), target_B)
        log_BMC = functional.log_softmax(outputs_BMC, dim=2)
        log_BC = log_BMC.logsumexp(1) - math.log(outputs_BMC.shape[1])
        return functional.nll_loss(log_BC, target_B, reduction="none")

    def error_of_mean(self, outputs_BMC: Tensor, target_B: Tensor) -> Tensor:
        """1 for each row (B,) whose most probable class, of its members' mean, is wrong; else 0."""
        return (outputs_BMC.float().softmax(dim=2).mean(1).argmax(1) != target_B).float()

    def metric_of(self, mean_loss: float) -> float:
        """The metric (log loss, or RMSE or deviance in the target's unit) of a mean loss."""
        if self.task != "regression":
            return mean_loss
        if self.distribution in ("gaussian", "lognormal"):
            return math.sqrt(mean_loss) * self.std
        return mean_loss * math.exp(self.mean * (2 - POWERS[self.distribution]))

    def predict(self, outputs_BMC: Tensor) -> Tensor:
        """Probabilities (B, C) whose rows sum to 1, or values (B,) in the target's unit, in float64."""
        if self.task == "regression":
            learned_B = self._within(outputs_BMC.double().mean(1).squeeze(1)) * self.std + self.mean
            return learned_B if self.distribution == "gaussian" else learned_B.exp() * self.smear
        probability_BC = outputs_BMC.double().softmax(dim=2).mean(1)
        if self.temperature == 1:
            return probability_BC
        return (probability_BC.clamp(min=_ALMOST_ZERO).log() / self.temperature).softmax(dim=1)

    def _within(self, standardised_B: Tensor) -> Tensor:
        if self.low is None or self.high is None:
            return standardised_B
        ends = [self.low, self.high]
        if self.distribution != "gaussian":
            ends = [math.log(max(end, _ALMOST_ZERO)) for end in ends]
        low, high = ((end - self.mean) / self.std for end in ends)
        return standardised_B.clamp(low, high)

    def _deviance(self, output: Tensor, target: Tensor) -> Tensor:
        """Of each row: 0 where the prediction is right."""
        if self.distribution == "poisson":
            return 2 * (torch.xlogy(target, target) - target * output - target + output.exp())
        if self.distribution == "gamma":
            return 2 * (target * (-output).exp() - target.log() + output - 1)
        if self.distribution == "tweedie":
            one, two = 1 - POWERS["tweedie"], 2 - POWERS["tweedie"]
            least = target.pow(two) / (one * two)
            return 2 * (least - target * (one * output).exp() / one + (two * output).exp() / two)
        return functional.mse_loss(output, target, reduction="none")
