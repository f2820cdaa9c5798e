"""`pp` and `dp_pp`: each rank holds consecutive blocks, and micro-batches pass through the ranks (1F1B).

A pipeline computes batches of one shape only, so the last batch of an epoch is padded with rows of weight 0.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

from sparkgpu.neural.nets.dropout import Place, dropouts, set_place
from sparkgpu.neural.nets.network import TabularNet
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.strategies.base import RankPlace
from sparkgpu.neural.strategies.data_parallel import Distributed


class PipelineParallel(Distributed):
    """`pp`, and `dp_pp` if there are several copies: as many pipelines, each with its part of a batch."""

    cuts_batches = True
    forward_communicates = True

    def __init__(self, place: RankPlace) -> None:
        super().__init__(place)
        self.data_size = place.copies
        self.name = "pp" if self.data_size == 1 else "dp_pp"
        self.num_stages = self.num_ranks // self.data_size
        self.shards = self.num_stages
        shape = (self.data_size, self.num_stages)
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("dp", "pp"))
        self.data_rank = mesh.get_local_rank("dp")
        self.stage = mesh.get_local_rank("pp")
        self._replicas = mesh["dp"].get_group()
        self._pipeline = mesh["pp"].get_group()
        self._share = -(-place.batch_size // self.data_size)
        self.use_micro_rows(place.micro_rows)

    def use_micro_rows(self, rows: int) -> None:
        # Enough micro-batches to keep every stage busy most of the time, each with a whole number of rows.
        self._num_micro = max(2 * self.num_stages, -(-self._share // rows))
        self._micro_rows = -(-self._share // self._num_micro)

    @property
    def _is_first(self) -> bool:
        return self.stage == 0

    @property
    def _is_last(self) -> bool:
        return self.stage == self.num_stages - 1

    def _placed(self, net: TabularNet) -> nn.Module:
        stage = cut(net, self.stage, self.num_stages).to(self.device)
        self._pipe = _PlacedStage(
            stage, self.stage, self.num_stages, self.device, group=self._pipeline, micro_rows=self._micro_rows
        )
        self._schedule = Schedule1F1B(
            self._pipe, self._num_micro, loss_fn=self._micro_loss, scale_grads=False
        )
        return stage

    def backward(self, batch: ResidentRows, place: Place, *, last: bool = True) -> Tensor:
        self._denominator = place.batch_rows
        self._pipe.place = place
        set_place(self._dropouts, place)  # for the passes that determine shapes
        total = self._pass(batch, self._schedule.step) * place.batch_rows
        if self.data_size > 1:
            gradients = [p.grad for p in self.parameters() if p.grad is not None]
            flat = torch.nn.utils.parameters_to_vector(gradients)
            dist.all_reduce(flat, group=self._replicas)
            torch.nn.utils.vector_to_parameters(flat, gradients)
        return total

    def _chunk_rows(self) -> int:
        return self._micro_rows * self._num_micro

    def _summed_measures(self, rows: ResidentRows) -> Tensor:
        return self._pass(rows, self._schedule.eval)

    def _pass(self, batch: ResidentRows, schedule: Any) -> Tensor:
        """Send a batch through the pipeline. Returns its summed loss on the last stage, 0 on the others."""
        missing = self._chunk_rows() - len(batch)
        inputs: tuple[Tensor, ...] = ()
        if self._is_first:
            inputs = tuple(functional.pad(x, (0, 0, 0, missing)) for x in (batch.numeric_NG, batch.codes_NK))
        losses: list[Tensor] = []
        # Evaluation is in float32, as everywhere.
        with self.precision.autocast() if self.module.training else nullcontext():
            if self._is_last:
                weight_B = batch.weighted(batch.numeric_NG.new_ones(len(batch), dtype=torch.float64))
                target_BX = torch.column_stack([batch.target_N.double(), weight_B])
                schedule(*inputs, target=functional.pad(target_BX, (0, 0, 0, missing)), losses=losses)
            else:
                schedule(*inputs)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        return total + sum(loss.detach().double() for loss in losses)

    def _micro_loss(self, outputs_BMC: Tensor, target_BX: Tensor) -> Tensor:
        """The target, or several, and last the weight of each row are in `target_BX`."""
        objective = self.objective
        target_B = target_BX[:, :-1].squeeze(1)
        target_B = target_B.float() if objective.task == "regression" else target_B.long()
        weight_B = target_BX[:, -1].float()
        if self.module.training:
            return (objective.loss(outputs_BMC, target_B) * weight_B).sum() / self._denominator
        return torch.stack([(measure(outputs_BMC, target_B) * weight_B).sum() for measure in self._measures])

    def copies(self, parameter: nn.Parameter) -> int:
        return self.data_size

    def gather(self) -> dict[str, Tensor]:
        own = {name: value.cpu() for name, value in self.module.state_dict().items()}
        parts: list[Any] | None = [None] * self.num_ranks if self.leads else None
        dist.gather_object(own, parts, dst=0)
        return {name: value for part in parts or [] for name, value in part.items()}


class _PlacedStage(PipelineStage):
    """A stage that tells its dropouts which rows of the batch each micro-batch holds.

    It uses the schedule's number of the micro-batch. Counting forward passes would be wrong, since some of
    them only determine shapes.
    """

    def __init__(self, *arguments: Any, micro_rows: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.place: Place | None = None
        self._micro_rows = micro_rows
        self._dropouts = dropouts(self.submod)

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        if self.place is not None:
            first = self.place.first_row + fwd_chunk_id * self._micro_rows
            set_place(self._dropouts, replace(self.place, first_row=first))
        return super().forward_one_chunk(fwd_chunk_id, *arguments, **named)


def cut(net: TabularNet, stage: int, num_stages: int) -> TabularNet:
    """Reduce a whole network, in place, to the blocks of one stage; stages get equal numbers of blocks."""
    numbers = list(net.blocks)
    share, more = divmod(len(numbers), num_stages)
    first = stage * share + min(stage, more)
    kept = numbers[first : first + share + (stage < more)]
    for number in numbers:
        if number not in kept:
            del net.blocks[number]
    if stage > 0:
        net.input = None
    if stage < num_stages - 1:
        net.output = None
    return net
