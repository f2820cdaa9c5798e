"""`fsdp`, `tp` and `dp_tp`: weights, gradients and optimizer state are cut over the ranks.

In `fsdp` a block is whole only to compute. In `tp` ranks compute the same rows together: layers are cut in
pairs, the first of a pair by its outputs, the second by its inputs, so the values between them are never
gathered. Embedding tables are cut by rows. Small parameters stay whole on every rank.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from sparkgpu.neural.nets.dropout import Place, dropouts
from sparkgpu.neural.nets.inputs import CategoryEmbeddings
from sparkgpu.neural.nets.mlp import MLPBlock
from sparkgpu.neural.nets.network import Members, TabularNet
from sparkgpu.neural.nets.resnet import ResidualBlock
from sparkgpu.neural.nets.tabm import FirstBlock
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
        self.shards = self.num_ranks

    def _placed(self, net: TabularNet) -> nn.Module:
        # Block by block from the host to the device, which never holds the whole network.
        return shard(net, init_device_mesh(self.device.type, (self.num_ranks,)))


def shard(net: TabularNet, mesh: DeviceMesh) -> TabularNet:
    """Cut a network over `mesh`, block by block, so that one block at a time is gathered."""
    for block in net.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


class TensorParallel(Sharded):
    """`tp`, and `dp_tp` if there are several copies.

    `dp_tp` has groups of ranks that compute different rows. Each group has a network cut over its own ranks;
    over the groups, weights are sharded as in `fsdp`.
    """

    def __init__(self, place: RankPlace) -> None:
        super().__init__(place)
        self.data_size = place.copies
        self.name = "tp" if self.data_size == 1 else "dp_tp"
        shape = (self.data_size, self.num_ranks // self.data_size)
        self.shards = self.num_ranks
        self._mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("dp", "tp"))
        self.data_rank = self._mesh.get_local_rank("dp")
        self.data_group = self._mesh["dp"].get_group()
        self.gradient_scale = float(self.data_size)  # torch takes the mean over the groups

    def _placed(self, net: TabularNet) -> nn.Module:
        cut(net, self._mesh["tp"])  # which moves each rank's part to its device
        net.to(self.device)
        return net if self.data_size == 1 else shard(net, self._mesh["dp"])

    def step(self, optimizer: torch.optim.Optimizer, most_norm: float | None) -> None:
        for parameter in self.parameters():
            # The gradient of a table cut by rows arrives whole; each rank needs only that of its own rows.
            if isinstance(parameter.grad, DTensor) and isinstance(parameter.data, DTensor):
                parameter.grad = parameter.grad.redistribute(placements=parameter.data.placements)
        super().step(optimizer, most_norm)


def cut(net: TabularNet, mesh: DeviceMesh) -> None:
    """Cut the layers of a network over `mesh`, in place."""
    index, size = mesh.get_local_rank(), mesh.size()
    plan: dict[str, ParallelStyle] = {}
    inside_pair = False
    for number, block in net.blocks.items():
        if isinstance(block, ResidualBlock):
            plan |= {
                f"blocks.{number}.expand": ColwiseParallel(),
                f"blocks.{number}.reduce": RowwiseParallel(),
            }
            block.dropout.shard = (index, size)
        elif isinstance(block, MLPBlock):
            if isinstance(block, FirstBlock):
                block.may_merge = False
            plan[f"blocks.{number}.linear"] = RowwiseParallel() if inside_pair else ColwiseParallel()
            if not inside_pair:
                block.dropout.shard = (index, size)
            inside_pair = not inside_pair
    if inside_pair and isinstance(net.output, Members):
        plan["output.layer"] = RowwiseParallel()
    elif inside_pair:  # an output that cannot be cut needs whole rows from the block before it
        last = list(net.blocks)[-1]
        del plan[f"blocks.{last}.linear"]
        for dropout in dropouts(net.blocks[last]):
            dropout.shard = (0, 1)
    for name, module in net.named_modules():
        if isinstance(module, CategoryEmbeddings):
            for position, table in enumerate(module.tables):
                assert isinstance(table, nn.Embedding)
                if table.num_embeddings >= size:
                    plan[f"{name}.tables.{position}"] = RowwiseParallel(input_layouts=Replicate())
    parallelize_module(net, mesh, plan)
