"""The training loop: batches, steps, validation after each epoch, early stopping.

Nothing in it waits for the device within an epoch; losses are summed there and read once an epoch.

N rows, B of a batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch._dynamo  # the first optimizer imports it, which takes a second: better while the table is made
from torch import Tensor, nn

from sparkgpu.config import NeuralConfig
from sparkgpu.engines.neural.data import ResidentRows, epoch_batches
from sparkgpu.engines.neural.objective import Objective
from sparkgpu.engines.neural.strategy import Single
from sparkgpu.errors import TrialError

Report = Callable[[float, int, float | None], None]
"""Called with the share of all epochs done, the number of whole epochs, and the last validation metric."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One epoch: seconds since the start, and the metric on training (with dropout) and validation rows."""

    epoch: int
    elapsed_s: float
    train: float
    valid: float


@dataclass(frozen=True, kw_only=True)
class Training:
    """What training did. `best_epoch` has the least validation metric, `kept_epoch` gave the weights."""

    curve: tuple[CurvePoint, ...]
    best_epoch: int
    kept_epoch: int
    optimizer: str
    notes: tuple[str, ...] = field(default=())


def train(
    net: nn.Module,
    train_rows: ResidentRows,
    valid_rows: ResidentRows,
    *,
    objective: Objective,
    config: NeuralConfig,
    strategy: Single,
    seed: int,
    report: Report,
) -> Training:
    """Train `net` in place with AdamW.

    With `patience` p > 0 it ends after p epochs without a better validation metric and the best epoch's
    weights are kept; with 0 it runs all epochs and keeps the last. Raises `TrialError` when the loss is no
    longer a number before any epoch was good.
    """
    epochs, batch_size, patience = config.epochs, config.batch_size, config.patience
    assert epochs and batch_size and patience is not None  # filled in by plan.resolve_parameters
    assert config.learning_rate is not None and config.weight_decay is not None
    module = strategy.spread(net)
    parameters = list(module.parameters())
    # One fused kernel for all parameters; measured fastest on the CPU.
    optimizer = torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    generator = torch.Generator(strategy.device).manual_seed(seed)
    steps = -(-len(train_rows) // batch_size)
    curve: list[CurvePoint] = []
    best: CurvePoint | None = None
    best_weights: dict[str, Tensor] = {}
    notes: list[str] = []
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        module.train()
        total = torch.zeros((), dtype=torch.float64, device=strategy.device)
        for step, index_B in enumerate(epoch_batches(len(train_rows), batch_size, generator)):
            total += _step(module, train_rows, index_B, objective, strategy, optimizer, parameters)
            report((epoch - 1 + (step + 1) / steps) / epochs, epoch - 1, curve[-1].valid if curve else None)
        point = CurvePoint(
            epoch=epoch,
            train=objective.metric_of(float(total) / len(train_rows)),
            valid=objective.metric_of(mean_loss(module, valid_rows, objective)),
            elapsed_s=time.perf_counter() - start,
        )
        if not (math.isfinite(point.train) and math.isfinite(point.valid)):
            if best is None or not patience:
                raise TrialError(
                    f"the network diverged: its {objective.metric} is {point.valid} after epoch {epoch}. "
                    f"Lower neural.learning_rate (now {config.learning_rate:g})."
                )
            notes.append(f"training diverged in epoch {epoch}; the weights of epoch {best.epoch} are kept")
            break
        curve.append(point)
        report(epoch / epochs, epoch, point.valid)
        if best is None or point.valid < best.valid:
            best = point
            best_weights = strategy.weights(module) if patience else {}
        elif patience and epoch - best.epoch >= patience:
            break
    assert best is not None
    if patience:
        module.load_state_dict(best_weights)
    return Training(
        curve=tuple(curve),
        best_epoch=best.epoch,
        kept_epoch=best.epoch if patience else curve[-1].epoch,
        optimizer="AdamW (fused)",
        notes=tuple(notes),
    )


def mean_loss(net: nn.Module, rows: ResidentRows, objective: Objective) -> float:
    """The mean loss of all rows, by weight where there are weights, in evaluation mode and float32."""
    net.eval()
    total = torch.zeros((), dtype=torch.float64, device=rows.target_N.device)
    with torch.no_grad():
        for part in rows.chunks(eval_rows(rows.target_N.device)):
            loss_B = objective.loss(net(part.numeric_NG, part.codes_NK), part.target_N)
            total += (loss_B if part.weight_N is None else loss_B * part.weight_N).sum(dtype=torch.float64)
    return float(total) / len(rows)


def eval_rows(device: torch.device) -> int:
    """Rows of one evaluation chunk: what a CPU's cache holds, or enough to fill a GPU."""
    return 2_048 if device.type == "cpu" else 131_072


def _step(
    net: nn.Module,
    rows: ResidentRows,
    index_B: Tensor,
    objective: Objective,
    strategy: Single,
    optimizer: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
) -> Tensor:
    """One step on one batch; the batch's summed loss, left on the device."""
    batch = rows.take(strategy.own_part(index_B))
    with strategy.autocast():
        outputs_BC = net(batch.numeric_NG, batch.codes_NK)
    loss_B = objective.loss(outputs_BC, batch.target_N)
    if batch.weight_N is not None:
        loss_B = loss_B * batch.weight_N
    total = loss_B.sum()
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(total / len(index_B))
    strategy.apply_gradients(optimizer, parameters)
    return total.detach()
