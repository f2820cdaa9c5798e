"""What a network's raw outputs mean: the loss of each row, the metric watched, and the prediction.

B rows, C classes (1 output for regression).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sparkgpu.schema import Task


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Cross-entropy for classes; squared error on the standardised target for regression.

    `mean` and `std` are the training target's, so that one learning rate serves every unit.
    """

    task: Task
    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def fit(
        cls, task: Task, label_N: NDArray[np.int64 | np.float64], weight_N: NDArray[np.float32] | None
    ) -> Objective:
        """Take mean and deviation from the training rows, weighted where they have weights."""
        if task != "regression":
            return cls(task=task)
        mean = float(np.average(label_N, weights=weight_N))
        reach = float(np.abs(label_N - mean).max())
        if reach == 0:  # a constant target is learned as it is
            return cls(task=task, mean=mean)
        # Squares of the share of the greatest deviation, not of the deviation: those can overflow.
        share = math.sqrt(float(np.average(np.square((label_N - mean) / reach), weights=weight_N)))
        return cls(task=task, mean=mean, std=reach * share if share > 0 else 1.0)

    @property
    def metric(self) -> str:
        return "rmse" if self.task == "regression" else "log_loss"

    def targets(self, label_N: NDArray[np.int64 | np.float64]) -> Tensor:
        """Labels as the loss takes them: class codes, or standardised values in float32."""
        if self.task == "regression":
            return torch.from_numpy(((label_N - self.mean) / self.std).astype(np.float32))
        return torch.from_numpy(label_N)

    def loss(self, outputs_BC: Tensor, target_B: Tensor) -> Tensor:
        """The loss of each row (B,), in float32 whatever the precision of the outputs."""
        if self.task == "regression":
            return functional.mse_loss(outputs_BC.float().squeeze(1), target_B, reduction="none")
        return functional.cross_entropy(outputs_BC.float(), target_B, reduction="none")

    def metric_of(self, mean_loss: float) -> float:
        """The metric (log loss, or RMSE in the target's unit) that belongs to a mean loss."""
        return math.sqrt(mean_loss) * self.std if self.task == "regression" else mean_loss

    def predict(self, outputs_BC: Tensor) -> Tensor:
        """Probabilities (B, C) whose rows sum to 1, or values (B,) in the target's unit, in float64."""
        if self.task == "regression":
            return outputs_BC.squeeze(1).double() * self.std + self.mean
        return outputs_BC.double().softmax(dim=1)
