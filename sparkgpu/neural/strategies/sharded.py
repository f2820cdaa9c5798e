"""`fsdp`: weights, gradients and optimizer state are cut over the ranks; a block is whole only to compute."""

from __future__ import annotations

import math
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate

from sparkgpu.neural.nets.dropout import Place
from sparkgpu.neural.nets.network import TabularNet
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.strategies.base import RankPlace
from sparkgpu.neural.strategies.data_parallel import Distributed


class Sharded(Distributed):
    """Strategies whose parameters are `DTensor`s."""

    forward_communicates = True

    def copies(self, parameter: nn.Parameter) -> int:
        value = parameter.data
        if not isinstance(value, DTensor):
            return self.num_ranks
        pairs = zip(value.placements, value.device_mesh.shape, strict=True)
        return self.num_ranks // math.prod(size for kind, size in pairs if not isinstance(kind, Replicate))

    def backward(self, batch: ResidentRows, place: Place, *, last: bool = True) -> Tensor:
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(last)
        return super().backward(batch, place, last=last)

    def gather(self) -> dict[str, Tensor]:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        found: dict[str, Any] = get_model_state_dict(self.module, options=options)
        return found


class FullyShardedDataParallel(Sharded):
    """`fsdp`, in torch's second version (FSDP2)."""

    name = "fsdp"

    def __init__(self, place: RankPlace) -> None:
        super().__init__(place)
        self.data_rank, self.data_size = dist.get_rank(), self.num_ranks
        self.shards = self.num_ranks
        self.gradient_scale = float(self.num_ranks)  # torch takes the mean over ranks

    def _placed(self, net: TabularNet) -> nn.Module:
        # Block by block from the host to the device, which never holds the whole network.
        return shard(net, init_device_mesh(self.device.type, (self.num_ranks,)))


def shard(net: TabularNet, mesh: DeviceMesh) -> TabularNet:
    """Cut a network over `mesh`, block by block, so that one block at a time is gathered."""
    for block in net.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net
