"""The meaning of a network's raw outputs: the loss of each row, the watched metric, and the prediction.

A network gives M predictions of each row (1 unless it is an ensemble). Each has its own loss, so every member
learns the task by itself. The final prediction averages probabilities.

B rows, M members, C classes (1 output for regression).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sparkgpu.core.table.schema import Task

_ALMOST_ZERO = 1e-38  # as where a run scales its predictions


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Cross-entropy for classes; squared error on the standardised target for regression.

    `mean` and `std` are those of the training target, so that one learning rate serves every unit.
    Predictions stay between `low` and `high` if these are given. `label_smoothing` affects only the training
    loss, and `temperature` only predictions: the logarithms of their probabilities are divided by it.
    """

    task: Task
    mean: float = 0.0
    std: float = 1.0
    low: float | None = None
    high: float | None = None
    label_smoothing: float = 0.0
    temperature: float = 1.0

    @classmethod
    def fit(
        cls, task: Task, label_N: NDArray[np.int64 | np.float64], weight_N: NDArray[np.float32] | None
    ) -> Objective:
        """Take mean and standard deviation from the training rows, weighted if they have weights."""
        if task != "regression":
            return cls(task=task)
        mean = float(np.average(label_N, weights=weight_N))
        reach = float(np.abs(label_N - mean).max())
        if reach == 0:  # a constant target is not scaled
            return cls(task=task, mean=mean)
        # Divide by the greatest deviation before squaring, since squares of deviations can overflow.
        share = math.sqrt(float(np.average(np.square((label_N - mean) / reach), weights=weight_N)))
        return cls(task=task, mean=mean, std=reach * share if share > 0 else 1.0)

    @property
    def metric(self) -> str:
        return "rmse" if self.task == "regression" else "log_loss"

    def targets(self, label_N: NDArray[np.int64 | np.float64]) -> Tensor:
        """Labels in the form the loss takes: class codes, or standardised values in float32."""
        if self.task == "regression":
            return torch.from_numpy(((label_N - self.mean) / self.std).astype(np.float32))
        return torch.from_numpy(label_N)

    def loss(self, outputs_BMC: Tensor, target_B: Tensor) -> Tensor:
        """The loss of each row (B,), the mean over its members; float32 for any precision of the outputs."""
        outputs_BMC = outputs_BMC.float()
        target_BM = target_B.unsqueeze(1).expand(outputs_BMC.shape[:2])
        if self.task == "regression":
            return functional.mse_loss(outputs_BMC.squeeze(2), target_BM, reduction="none").mean(1)
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
            return functional.mse_loss(
                self._within(outputs_BMC.mean(1).squeeze(1)), target_B, reduction="none"
            )
        log_BMC = functional.log_softmax(outputs_BMC, dim=2)
        log_BC = log_BMC.logsumexp(1) - math.log(outputs_BMC.shape[1])
        return functional.nll_loss(log_BC, target_B, reduction="none")

    def error_of_mean(self, outputs_BMC: Tensor, target_B: Tensor) -> Tensor:
        """1 for each row (B,) whose most probable class, of its members' mean, is wrong; else 0."""
        return (outputs_BMC.float().softmax(dim=2).mean(1).argmax(1) != target_B).float()

    def metric_of(self, mean_loss: float) -> float:
        """The metric (log loss, or RMSE in the target's unit) of a mean loss."""
        return math.sqrt(mean_loss) * self.std if self.task == "regression" else mean_loss

    def predict(self, outputs_BMC: Tensor) -> Tensor:
        """Probabilities (B, C) whose rows sum to 1, or values (B,) in the target's unit, in float64."""
        if self.task == "regression":
            return self._within(outputs_BMC.double().mean(1).squeeze(1)) * self.std + self.mean
        probability_BC = outputs_BMC.double().softmax(dim=2).mean(1)
        if self.temperature == 1:
            return probability_BC
        return (probability_BC.clamp(min=_ALMOST_ZERO).log() / self.temperature).softmax(dim=1)

    def _within(self, standardised_B: Tensor) -> Tensor:
        if self.low is None or self.high is None:
            return standardised_B
        return standardised_B.clamp((self.low - self.mean) / self.std, (self.high - self.mean) / self.std)
