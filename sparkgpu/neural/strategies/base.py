"""One network on one device, and the methods that the other strategies override.

The training loop never sees a rank. All strategies compute the gradient of the mean loss over the whole
batch, so they differ only in speed and memory.

B rows of this process's part of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sparkgpu.neural.nets.dropout import Place, dropouts, set_place
from sparkgpu.neural.nets.network import TabularNet
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.precision import Precision


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """Where a process stands that trains a network, alone or as a rank of the default group.

    `num_devices` are those of this process, `copies` how many copies of the network all ranks hold, each of
    which computes `micro_rows` of the `batch_size` rows of a step at once.
    """

    device: torch.device
    precision: Precision
    num_devices: int = 1
    copies: int = 1
    batch_size: int = 1
    micro_rows: int = 1


class Strategy:
    """`single`: the whole network and all of each batch in this process.

    This process computes part `data_rank` of the `data_size` parts of each batch.
    """

    name = "single"
    data_rank = 0
    data_size = 1
    num_ranks = 1
    leads = True
    """Whether this process writes the trial's files."""
    cuts_batches = False
    """Whether `backward` itself cuts a batch into micro-batches."""
    forward_communicates = False
    """Whether a forward pass waits for other ranks, so that none may repeat it alone."""
    shards = 1
    """The number of ranks over which weights and moments are cut."""
    gradient_scale = 1.0
    """A part's gradient is multiplied by this before the parts are combined."""

    def __init__(self, place: RankPlace) -> None:
        self.device, self.precision = place.device, place.precision
        self.scaler = place.precision.scaler()
        self.eval_rows = eval_rows(place.device)
        """The rows of one chunk of an evaluation."""
        self.beat: Callable[[], None] = lambda: None
        """Called between pieces of work, so that a long one does not look like a hang."""
        self.slow_work: Callable[[], AbstractContextManager[None]] = nullcontext
        """Surrounds work without such pieces, which may take long: a checkpoint, the reading of rows."""

    def use_micro_rows(self, rows: int) -> None:
        """Compute at most so many rows at once: the memory plan's answer, before `spread`.

        The training loop cuts its batches itself, but for strategies with `cuts_batches`.
        """

    def spread(self, net: TabularNet, objective: Objective) -> None:
        """Move the network to its devices; it holds the trained weights only after `gather`."""
        self.objective = objective
        self.net = net
        self.module: nn.Module = self._placed(net)
        self._dropouts = dropouts(self.module)
        self._clipped = self.parameters()

    def _placed(self, net: TabularNet) -> nn.Module:
        return net.to(self.device)

    def parameters(self) -> list[nn.Parameter]:
        return list(self.module.parameters())

    def scale_dropout(self, factor: float) -> None:
        for dropout in self._dropouts:
            dropout.scale_to(factor)

    def part(self, rows: int) -> slice:
        """The rows of a batch of `rows` that this process computes: equal shares, the last may be smaller."""
        share = -(-rows // self.data_size)
        return slice(min(self.data_rank * share, rows), min((self.data_rank + 1) * share, rows))

    def backward(self, batch: ResidentRows, place: Place, *, last: bool = True) -> Tensor:
        """Add the gradient of a micro-batch to the parameters. Returns its summed loss, on the device.

        `batch` holds the rows from `place.first_row` on of the step's batch. `last` means that no other
        micro-batch of the step follows, so the gradients may be combined.
        """
        set_place(self._dropouts, place)
        with self.precision.autocast():
            outputs_BMC = self.module(*batch.inputs)
        loss_B = batch.weighted(self.objective.loss(outputs_BMC, batch.target_N))
        total = loss_B.sum()
        # To give `backward` the factor would save three small operations, but torch then loads sympy (0.4 s).
        mean = total * (self.gradient_scale / place.batch_rows)
        torch.autograd.backward(mean if self.scaler is None else self.scaler.scale(mean))
        return total.detach()

    def step(self, optimizer: torch.optim.Optimizer, most_norm: float | None) -> None:
        """Clip the norm of the whole gradient to `most_norm` and take one step."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)
        if most_norm is not None:
            self._clip(most_norm)
        matrices = [p for group in optimizer.param_groups if group["muon"] for p in group["params"]]
        with self.precision.in_steps(matrices):
            if self.scaler is None:
                optimizer.step()
            else:
                self.scaler.step(optimizer)
                self.scaler.update()
        optimizer.zero_grad(set_to_none=True)  # frees the gradient's memory for evaluation

    def _clip(self, most_norm: float) -> None:
        nn.utils.clip_grad_norm_(self._clipped, most_norm)

    def mean_loss(self, rows: ResidentRows, *, errors: bool = False) -> tuple[float, float | None]:
        """The mean loss of all rows and, with `errors`, the share of wrong classes, in one pass.

        In evaluation mode and float32; both are weighted if there are weights.
        """
        self.module.eval()
        self._measures = [self.objective.loss_of_mean, *([self.objective.error_of_mean] if errors else [])]
        totals = torch.zeros(len(self._measures), dtype=torch.float64, device=self.device)
        # Equally many chunks on all ranks: a forward pass may communicate.
        share, size = -(-len(rows) // self.data_size), self._chunk_rows()
        own = rows.part(self.part(len(rows)))
        with torch.no_grad():
            for begin in range(0, share, size):
                self.beat()
                totals += self._summed_measures(own.part(slice(begin, begin + size)))
        loss, *error = (total / len(rows) for total in self.sums_over_parts(totals))
        return loss, error[0] if error else None

    def _chunk_rows(self) -> int:
        return self.eval_rows

    def _summed_measures(self, rows: ResidentRows) -> Tensor:
        outputs_BMC = self.module(*rows.inputs)
        found = (rows.weighted(measure(outputs_BMC, rows.target_N)) for measure in self._measures)
        return torch.stack([measured_B.sum(dtype=torch.float64) for measured_B in found])

    def sums_over_parts(self, values: Tensor) -> list[float]:
        """The sums over the processes that compute different rows."""
        found: list[float] = values.tolist()
        return found

    def sum_over_parts(self, value: Tensor) -> float:
        return self.sums_over_parts(value.unsqueeze(0))[0]

    def greatest(self, value: float) -> float:
        """The greatest value of all ranks, which call this together, so that they decide alike."""
        return value

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of this process's weights."""
        return {name: value.detach().clone() for name, value in self.net.state_dict().items()}

    def restore(self, weights: dict[str, Tensor]) -> None:
        self.net.load_state_dict(weights)

    def gather(self) -> dict[str, Tensor]:
        """All weights under the whole network's names on the leading process; empty on the others."""
        return self.net.state_dict()


def eval_rows(device: torch.device) -> int:
    """Rows of one evaluation chunk: as many as a CPU's cache holds, or enough to fill a GPU."""
    return 2_048 if device.type == "cpu" else 131_072
