"""A whole training step on memory that stays, so that a device can repeat it without Python.

A CUDA graph starts the hundred kernels of a small network's step at once, with the addresses and numbers of
the step that it captured. So whatever differs between steps lies in memory that stays, and is written there
before each one: the batch, the draws of dropout, the learning rates. Nothing of it waits for the device.

Limits: batches of one size, so the smaller last one of an epoch is a plain step; one process; no scaled
losses; dropout and weight decay that stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.rundir.records import MemoryRecord
from sparkgpu.neural.nets.dropout import Dropout, HeldMask, Place, dropouts
from sparkgpu.neural.nets.network import find_network
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.cuda_graph_internals import capture
from sparkgpu.neural.training.memory import is_out_of_memory, release, wait_for_room
from sparkgpu.neural.training.optimizer import Optimizer, Recipe, set_progress

_WARM_STEPS = 3  # libraries find their algorithms and take their memory before anything is captured
_COPIES = 3  # of weights and moments while the first repetition is compared
_MOST_APART = 0.1  # of what a step moves; a number that a capture kept makes half of it or more

Work = Callable[[], None]
StepOn = Callable[[ResidentRows, int], None]


class CudaGraph:
    """A captured step.

    No graph has run on a GPU yet. So a first repetition is compared with a plain step (`needs_proof`), and
    whatever fails leaves plain steps and a note.
    """

    needs_proof = True

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph = torch.cuda.CUDAGraph()

    def warm(self, work: Work) -> None:
        """Do the work on the stream of the capture, where libraries keep their workspaces."""
        now = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            work()
        now.wait_stream(self._stream)

    def capture(self, work: Work) -> None:
        """Learn the work, without doing it."""
        capture(self._graph, self._stream, work)

    def replay(self) -> None:
        self._graph.replay()

    def drop(self) -> None:
        """Give back the memory of a capture; nothing is repeated any more."""
        self._graph = torch.cuda.CUDAGraph()


class FixedStep:
    """Steps of `config.batch_size` rows: the first ones plainly, then one is captured and repeated."""

    def __init__(
        self,
        strategy: Strategy,
        optimizer: Optimizer,
        config: NeuralParameters,
        recipe: Recipe,
        seed: int,
        total: Tensor,
        graph: CudaGraph,
    ) -> None:
        self._strategy = strategy
        self._optimizer = optimizer
        self._config = config
        self._recipe = recipe
        self._seed = seed
        self._total = total
        self._graph = graph
        self._rates = [torch.zeros((), device=strategy.device) for _ in optimizer.param_groups]
        self._asked: list[float] = []  # what `_rates` hold
        self._masks: list[tuple[Dropout, HeldMask]] = [
            (module, HeldMask()) for module in dropouts(strategy.module) if module.drops
        ]
        self._rows: ResidentRows | None = None
        self._taken = 0
        self._is_captured = self._has_waited = False
        self.refusal: str | None = None
        """Why no step is repeated any more."""

    @property
    def rows(self) -> ResidentRows | None:
        """The memory from which a captured step reads, where its next batch may be made."""
        return self._rows if self._is_captured else None

    def take(self, step_on: StepOn, batch: ResidentRows, step: int, done: float) -> bool:
        """Take a step on `batch`. False means that nothing has changed and the step must be taken plainly.

        `step_on(batch, step)` takes one step on a batch and adds its loss to the total. It is not kept: the
        loop that it belongs to keeps this object, and a circle would hold the device's memory until the
        garbage collector runs.
        """
        if self.refusal is not None or len(batch) != self._config.batch_size:
            return False
        try:
            with self._held():
                self._feed(batch, step, done)
                assert self._rows is not None
                work = partial(step_on, self._rows, step)
                if self._taken < _WARM_STEPS:
                    self._graph.warm(work)
                    self._taken += 1
                    return True
                if not self._is_captured:
                    self._graph.capture(work)
                    if self._graph.needs_proof and not self._is_proven(work, batch, step, done):
                        return self._refuse("a repeated step gave other weights than a plain one")
                    self._is_captured = True
                self._graph.replay()
        except RuntimeError as error:
            if self._is_captured or (self._taken < _WARM_STEPS and not is_out_of_memory(error)):
                raise
            lacks_memory = is_out_of_memory(error)
            refusal = "the device's memory does not hold a captured step"
            if not lacks_memory:
                refusal = f"capturing failed ({str(error).splitlines()[0]})"
        else:
            return True
        self._begin_again()
        if (
            lacks_memory
            and not self._has_waited
            and wait_for_room(self._strategy.device, self._strategy.beat)
        ):
            self._has_waited = True
            return False
        return self._refuse(refusal)

    def _refuse(self, reason: str) -> bool:
        self.refusal = reason
        self._begin_again()
        return False

    def _begin_again(self) -> None:
        self._rows, self._taken = None, 0
        self._graph.drop()
        release(self._strategy.device)

    def _feed(self, batch: ResidentRows, step: int, done: float) -> None:
        """Write what is particular to this step to the memory that stays."""
        if self._rows is None:
            self._rows = batch.copied()
        elif batch is not self._rows:
            self._rows.overwrite(batch)
        set_progress(self._optimizer, self._config, self._recipe, done)
        asked = [group["lr"] for group in self._optimizer.param_groups]
        if asked != self._asked:
            for rate, value in zip(self._rates, asked, strict=True):
                rate.fill_(value)  # an argument of a kernel, so nothing waits for the device
        self._asked = asked
        self._draw(step)

    def _draw(self, step: int) -> None:
        place = Place(seed=self._seed, step=step, first_row=0, batch_rows=self._config.batch_size)
        for module, _ in self._masks:
            module.draw(place)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Inside, dropouts and optimizer read from the memory that stays."""
        for module, mask in self._masks:
            module.held = mask
        self._optimizer.held = self._rates
        try:
            yield
        finally:
            self._optimizer.held = None
            for module, _ in self._masks:
                module.held = None

    def _is_proven(self, work: Work, batch: ResidentRows, step: int, done: float) -> bool:
        """Whether a repetition changes weights and moments as the work itself does, from the same state.

        It gets another batch, other draws and other rates than the capture, so that a number which the
        capture kept is found. Afterwards everything is as before. It waits for the device, once a training.
        """
        assert self._rows is not None
        changed = [self._total, *self._strategy.parameters()]
        changed += [value for state in self._optimizer.state.values() for value in state.values()]
        before = _copies(changed)
        try:
            for rate in self._rates:
                rate.div_(2)
            self._asked = []
            self._draw(step + 1)
            self._rows.overwrite(batch.rolled())
            self._graph.warm(work)
            expected = _copies(changed)
            _restore(changed, before)
            self._graph.replay()
            found = [_agrees(*three) for three in zip(changed, expected, before, strict=True)]
        finally:
            _restore(changed, before)
        self._feed(batch, step, done)
        return bool(torch.stack(found).all())


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _restore(tensors: list[Tensor], values: list[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def _agrees(found: Tensor, expected: Tensor, before: Tensor) -> Tensor:
    """Kernels that add in any order differ by rounding, which may turn single small values over."""
    with torch.no_grad():
        apart = (found - expected).abs().sum()
        return apart <= _MOST_APART * (expected - before).abs().sum() + 1e-6 * expected.abs().sum()


def reason_against(strategy: Strategy, config: NeuralParameters, plan: MemoryRecord | None) -> str | None:
    """Why steps are started operation by operation; None if they may be captured."""
    if strategy.device.type != "cuda":
        return f"{strategy.device} has no CUDA graphs"
    if not config.cuda_graph:
        return "neural.cuda_graph is off"
    if strategy.name != "single":
        return f'only neural.strategy = "single" can be captured, not "{strategy.name}"'
    if strategy.scaler is not None:
        return "float16 scales its losses from step to step"
    if config.compile:
        return "neural.compile brings graphs of its own"
    recipe = find_network(config).recipe
    if recipe.dropout is not None or recipe.weight_decay is not None:
        return f"{config.architecture} changes its dropout or weight decay from step to step"
    if plan is not None and plan.budget_bytes < _with_graph(plan):
        return "the GPU's memory does not hold a captured step beside a plain one"
    return None


def _with_graph(plan: MemoryRecord) -> int:
    """A graph keeps the memory of its step, also while rows are evaluated or a smaller batch is learned."""
    besides = max(plan.step_bytes, plan.evaluation_bytes, _COPIES * plan.lasting_bytes)
    return plan.table_bytes + plan.lasting_bytes + plan.step_bytes + besides
