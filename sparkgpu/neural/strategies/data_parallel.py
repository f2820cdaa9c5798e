"""`dp` and `ddp`: the whole network on each device, a part of each batch.

`dp` is one process that copies the network to its devices for every step. `ddp` has one process per device
and combines gradients while they are computed, so it is faster.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sparkgpu.neural.nets.dropout import Dropout, Place
from sparkgpu.neural.nets.network import TabularNet
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.precision import Precision


class DataParallel(Strategy):
    """`dp`, for comparison with tutorials; on the CPU, which is one device, it is `single`.

    So only a machine with GPUs can compare it with `single`; which rows a device's masks are for
    (`device_place`) is tested without one.
    """

    name = "dp"

    def __init__(self, place: RankPlace) -> None:
        super().__init__(place)
        self._devices = list(range(place.num_devices)) if place.device.type == "cuda" else []

    def _placed(self, net: TabularNet) -> nn.Module:
        if not self._devices:
            return net
        self._own = _OwnRows(net.to(self.device), len(self._devices), self.precision)
        return nn.DataParallel(self._own, device_ids=self._devices)

    def backward(self, batch: ResidentRows, place: Place, *, last: bool = True) -> Tensor:
        if self._devices:
            self._own.micro_rows = len(batch)
        return super().backward(batch, place, last=last)


class _OwnRows(nn.Module):
    """A network whose dropouts know which rows of the batch each device's copy got.

    A copy sees its own rows alone, so `micro_rows`, of all devices together, is set before each pass. Each
    runs in a thread of its own, to which torch brings that autocast is on, but not its format: there it would
    be float16 on a GPU, without scaled losses.
    """

    def __init__(self, net: TabularNet, num_devices: int, precision: Precision) -> None:
        super().__init__()
        self.net = net
        self.micro_rows = 0
        self._num_devices = num_devices
        self._precision = precision

    def forward(self, *x: Tensor) -> Tensor:
        if self.training:
            index = x[0].device.index or 0
            for module in self.net.modules():
                if isinstance(module, Dropout) and module.place is not None:
                    module.place = device_place(module.place, self.micro_rows, self._num_devices, index)
        with self._precision.autocast() if self.training else nullcontext():
            out: Tensor = self.net(*x)
        return out


def device_place(micro: Place, micro_rows: int, num_devices: int, index: int) -> Place:
    """The place of device number `index`'s rows of a micro-batch of `micro_rows` rows that is at `micro`.

    As `nn.DataParallel` cuts it, with `torch.chunk`: the same number of rows to each device in turn, so that
    the last ones may get fewer, or none.
    """
    share = -(-micro_rows // num_devices)
    return replace(micro, first_row=micro.first_row + share * index)


class Distributed(Strategy):
    """The base of strategies with several processes; all of these are ranks of the default group.

    Unless a strategy says otherwise, each rank computes its own part of a batch.
    """

    def __init__(self, place: RankPlace) -> None:
        super().__init__(place)
        self.data_rank, self.data_size = dist.get_rank(), dist.get_world_size()
        self.num_ranks = self.data_size
        self.leads = self.data_rank == 0
        self.gradient_scale = float(self.num_ranks)  # torch takes the mean over ranks
        self.data_group: dist.ProcessGroup | None = None
        """The ranks that compute different rows with the same part of the network; None means all."""
        # Processors may differ: all compute in float32 if one of them has to.
        if self.device.type == "cpu" and self.greatest(self.precision.dtype is None) > 0:
            self.precision = replace(self.precision, dtype=None)

    def sums_over_parts(self, values: Tensor) -> list[float]:
        totals = values.detach().clone()
        dist.all_reduce(totals, group=self.data_group)
        return super().sums_over_parts(totals)

    def greatest(self, value: float) -> float:
        found = torch.full((), value, dtype=torch.float64, device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return float(found)

    def _clip(self, most_norm: float) -> None:
        """Clip by the norm of the whole network's gradient, of which a rank may hold only a part.

        An element that several ranks hold counts once: each rank adds its square divided by the number of
        copies.
        """
        gradients = [(p, p.grad) for p in self.parameters() if p.grad is not None]
        total = torch.zeros((), device=self.device)
        for parameter, gradient in gradients:
            total += _local(gradient).square().sum() / self.copies(parameter)
        dist.all_reduce(total)
        factor = (most_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
        for _, gradient in gradients:
            _local(gradient).mul_(factor)

    def copies(self, parameter: nn.Parameter) -> int:
        """The number of ranks that hold each element of a parameter."""
        return self.num_ranks


class DistributedDataParallel(Distributed):
    """`ddp`."""

    name = "ddp"

    def _placed(self, net: TabularNet) -> nn.Module:
        with warnings.catch_warnings():
            # The older torch versions that we support do not know the new name.
            warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
            return nn.parallel.DistributedDataParallel(
                net.to(self.device), broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def backward(self, batch: ResidentRows, place: Place, *, last: bool = True) -> Tensor:
        assert isinstance(self.module, nn.parallel.DistributedDataParallel)
        with nullcontext() if last else self.module.no_sync():
            return super().backward(batch, place, last=last)

    def _clip(self, most_norm: float) -> None:
        Strategy._clip(self, most_norm)  # noqa: SLF001 -- every rank holds the whole gradient


def _local(value: Tensor) -> Tensor:
    """This rank's part of a tensor, which may be sharded."""
    from torch.distributed.tensor import DTensor  # takes half a second, which a single process saves

    return value.to_local() if isinstance(value, DTensor) else value
