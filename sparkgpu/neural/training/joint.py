"""Several targets in one network: what its outputs and its loss mean, and the networks of one target in it.

Its last layer has the outputs of all targets side by side. The loss of a row is the sum over the targets of
which it has a label, each in units of the loss of the best constant prediction, and as if all rows had that
label. So each target counts as much as any other, whatever its unit, its classes and its gaps.

B rows, T targets, M members, C outputs of all targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.network import InputShape, build_net, find_network
from sparkgpu.neural.training.objective import Objective

METRIC = "relative_loss"
"""The mean of the targets' losses, each in times of that of a constant prediction."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """One target: its objective, the first of its outputs and their number, and the factor of its loss."""

    objective: Objective
    first: int
    num_outputs: int
    factor: float
    class_weights: tuple[float, ...]

    def of(self, outputs_BMC: Tensor) -> Tensor:
        """Its own outputs."""
        return outputs_BMC.narrow(-1, self.first, self.num_outputs)

    def loss(self, measure: str, outputs_BMC: Tensor, target_B: Tensor) -> Tensor:
        """That of each row (B,); 0 for a row without a label."""
        has_B = ~target_B.isnan()
        known_B = torch.where(has_B, target_B, 0.0)
        if self.objective.task != "regression":
            known_B = known_B.long()
        loss_B: Tensor = getattr(self.objective, measure)(self.of(outputs_BMC), known_B)
        if self.class_weights:
            loss_B = loss_B * _weights(self.class_weights, loss_B.device)[known_B]
        return torch.where(has_B, loss_B * self.factor, 0.0)


@cache  # a captured step may not copy them from the host
def _weights(of_classes: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(of_classes, device=device)


@dataclass(frozen=True, kw_only=True)
class JointObjective(Objective):
    """The objective of several targets; theirs (B, T) are numbers, so its own task is a regression."""

    heads: tuple[Head, ...]

    @classmethod
    def fit_all(
        cls,
        schemas: Sequence[TableSchema],
        label_NT: NDArray[np.float64],
        weight_N: NDArray[np.float32] | None,
        parameters: NeuralParameters,
    ) -> JointObjective:
        """From the training rows; the labels are in the order of the `schemas`."""
        heads: list[Head] = []
        recipe = find_network(parameters).recipe
        row_weight_N = np.ones(len(label_NT)) if weight_N is None else weight_N.astype(np.float64)
        for schema, label_N in zip(schemas, label_NT.T, strict=True):
            has_N = ~np.isnan(label_N) & (row_weight_N > 0)
            known_N = label_N[has_N].astype(np.int64 if schema.classes else np.float64)
            own_N = row_weight_N[has_N]
            fitted = Objective.fit(schema.task, known_N, own_N.astype(np.float32), parameters.distribution)
            share = float(own_N.sum() / row_weight_N.sum())
            head = Head(
                objective=recipe.objective(fitted, known_N),
                first=sum(head.num_outputs for head in heads),
                num_outputs=schema.num_outputs,
                factor=1 / (share * _loss_of_constant(fitted, schema, known_N, own_N)),
                class_weights=schema.class_weights,
            )
            heads.append(head)
        return cls(task="regression", heads=tuple(heads))

    @property
    def metric(self) -> str:
        return METRIC

    @property
    def num_outputs(self) -> int:
        return sum(head.num_outputs for head in self.heads)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return (len(self.heads),)

    def targets(self, label_NT: NDArray[Any]) -> Tensor:
        """Labels in the form the loss takes: class codes, or standardised values; NaN for none."""
        found = []
        for head, label_N in zip(self.heads, label_NT.T, strict=True):
            value_N = torch.full((len(label_N),), torch.nan)
            has_N = ~np.isnan(label_N)
            is_class = head.objective.task != "regression"
            known_N = label_N[has_N].astype(np.int64 if is_class else np.float64)
            value_N[torch.from_numpy(has_N)] = head.objective.targets(known_N).float()
            found.append(value_N)
        return torch.stack(found, dim=1)

    def loss(self, outputs_BMC: Tensor, target_BT: Tensor) -> Tensor:
        """As that of `Objective`, summed over the targets."""
        return self._sum("loss", outputs_BMC, target_BT)

    def loss_of_mean(self, outputs_BMC: Tensor, target_BT: Tensor) -> Tensor:
        """As that of `Objective`, summed over the targets."""
        return self._sum("loss_of_mean", outputs_BMC, target_BT)

    def _sum(self, measure: str, outputs_BMC: Tensor, target_BT: Tensor) -> Tensor:
        parts = [
            head.loss(measure, outputs_BMC, target_B)
            for head, target_B in zip(self.heads, target_BT.unbind(1), strict=True)
        ]
        return torch.stack(parts).sum(0)

    def metric_of(self, mean_loss: float) -> float:
        return mean_loss / len(self.heads)

    def predict(self, outputs_BMC: Tensor) -> Tensor:
        """The predictions of all targets side by side (B, C)."""
        parts = [head.objective.predict(head.of(outputs_BMC)) for head in self.heads]
        return torch.cat([part if part.ndim > 1 else part.unsqueeze(1) for part in parts], dim=1)


def _loss_of_constant(
    objective: Objective, schema: TableSchema, label_N: NDArray[Any], weight_N: NDArray[np.float64]
) -> float:
    """The mean training loss of the best constant prediction; 1 if that is always right."""
    if schema.classes:
        share_C = np.bincount(label_N, weights=weight_N, minlength=len(schema.classes))
        share_C = share_C * np.array(schema.class_weights or 1.0)
        share_C = share_C[share_C > 0] / share_C.sum()
        return float(-(share_C * np.log(share_C)).sum()) or 1.0
    target_N = objective.targets(label_N)
    loss_N = objective.loss_of_mean(torch.zeros(len(target_N), 1, 1), target_N).numpy()
    return float(np.average(loss_N, weights=weight_N)) or 1.0


def models_of(joint: TabularModel, parameters: NeuralParameters, shape: InputShape) -> list[TabularModel]:
    """The network of each target, in the order of the heads: a copy of what all share, and its head."""
    assert isinstance(joint.objective, JointObjective)
    found = []
    for head in joint.objective.heads:
        net = build_net(parameters, replace(shape, num_outputs=head.num_outputs))
        own = net.state_dict()
        for name, value in joint.net.state_dict().items():
            wanted = own[name].shape
            for dim, size in enumerate(wanted):  # only the outputs differ in number
                if own[name].shape[dim] != value.shape[dim]:
                    own[name] = value.narrow(dim, head.first, size)
                    break
            else:
                own[name] = value
        net.load_state_dict(own)
        device = joint.transform.knots_FQ.device
        model = TabularModel(joint.transform, net.to(device), head.objective, chunk_rows=joint.chunk_rows)
        found.append(model)
    return found
