"""The share of a GPU that a network may use, and what it plans to do with it."""

from __future__ import annotations

import copy

import torch

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.errors import TrialError
from sparkgpu.core.plan.gpu_memory import network_budget
from sparkgpu.core.rundir.records import MemoryRecord
from sparkgpu.neural.memory_plan import plan_memory
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.network import TabularNet, find_network
from sparkgpu.neural.rows.fitted import FittedRows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.fixed_step import reason_against
from sparkgpu.trials.engine import NeuralTrial
from sparkgpu.trials.turns import wait_for_trees

_LEAST_ROWS = 32
"""If the trees leave less than micro-batches of so many rows, the network waits for their end."""


_NO_ROOM = (
    "the GPU's memory does not hold the network beside the trees, and on a cluster neither waits for the "
    "other: train one of them with `models`, or give the executors larger GPUs."
)


class Card:
    """One GPU: `budget_bytes` are for the network's tensors, `beside_bytes` for trees at the same time.

    Others used `used_bytes` of it before the run began.
    """

    def __init__(self, device: torch.device, beside_bytes: int, used_bytes: int = 0) -> None:
        _, self._total = torch.cuda.mem_get_info(device)
        self._device = device
        self._used = used_bytes
        self.beside_bytes = beside_bytes
        self.budget_bytes = network_budget(self._total, beside_bytes, used_bytes)
        self.plan: MemoryRecord | None = None
        self.notes: list[str] = []

    def plan_for(
        self, trial: NeuralTrial, fitted: FittedRows, strategy: Strategy, net: TabularNet
    ) -> NeuralParameters:
        """The parameters with micro-batches that fit. `strategy` gets its chunks, and torch its limit.

        Where the trees leave too little, it waits for their end first. Raises `TrialError` if the network
        does not fit the card alone, or if nobody tells when the trees end.
        """
        config = trial.parameters
        model = TabularModel(copy.deepcopy(fitted.transform).cpu(), net, fitted.objective)

        def planned() -> MemoryRecord:
            return plan_memory(
                model,
                len(fitted.shape.num_levels),
                config,
                find_network(config).recipe,
                dtype=strategy.precision.dtype,
                table_bytes=fitted.bytes_on_device(),
                evaluated_rows=max(len(fitted.valid), trial.schema.splits["test"]),
                budget_bytes=self.budget_bytes,
                beside_bytes=self.beside_bytes,
                shards=strategy.shards,
                captures=reason_against(strategy, config, None) is None,
            )

        try:
            plan = planned()
        except TrialError:
            if not self.beside_bytes:
                raise
            plan = None
        least = min(_LEAST_ROWS, config.micro_batch_size)
        is_too_little = plan is None or plan.micro_rows < least
        if self.beside_bytes and strategy.greatest(is_too_little) > 0:
            if not trial.may_wait:
                raise TrialError(_NO_ROOM)
            wait_for_trees(trial.run, trial.spec.gang, trial.events, strategy.beat)
            self.notes.append("trained after the trees: the GPU's memory does not hold both at once")
            self.beside_bytes, self.budget_bytes = 0, network_budget(self._total, 0, self._used)
            plan = planned()
        assert plan is not None
        # Every rank must cut its part of a batch alike.
        plan = plan.model_copy(update={"micro_rows": int(-strategy.greatest(-plan.micro_rows))})
        torch.cuda.set_per_process_memory_fraction(min(self.budget_bytes / self._total, 1.0), self._device)
        self.plan = plan
        strategy.eval_rows = plan.eval_rows
        strategy.use_micro_rows(plan.micro_rows)
        return config.model_copy(update={"micro_batch_size": plan.micro_rows})
