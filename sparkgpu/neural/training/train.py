"""The training loop: batches, steps, validation after each epoch, early stopping.

Within an epoch, nothing waits for the device: losses are summed there and read once per epoch. Everything
follows from the seed and the place in training, never from a random state. So a run resumed from a checkpoint
continues exactly as if it had not stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field

import torch
from torch import Tensor

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.errors import TrialError
from sparkgpu.neural.nets.dropout import Place
from sparkgpu.neural.rows.resident import ResidentRows, ResidentSource
from sparkgpu.neural.rows.stream import StreamedSource
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.checkpoint import Checkpoints, CurvePoint, TrainingState
from sparkgpu.neural.training.fixed_step import CudaGraph, FixedStep
from sparkgpu.neural.training.memory import (
    NeedsSmallerBatches,
    halved,
    is_out_of_memory,
    release,
    wait_for_room,
)
from sparkgpu.neural.training.optimizer import Recipe, make_optimizer, set_progress
from sparkgpu.neural.training.time_limit import TimeLimit

_EVAL_BATCHES = 4  # micro-batches that are evaluated at once: without gradients a row takes less

Report = Callable[[float, int, float | None], None]
"""Called with the share of all epochs done, the number of whole epochs, and the last validation metric."""


@dataclass(kw_only=True)
class Training:
    """The training of the network that `strategy` holds, on rows of `source`.

    With `patience` p > 0 it stops after p epochs without a better validation metric and keeps the weights of
    the best epoch. With 0 it runs all epochs and keeps the last weights. It continues from the last
    checkpoint if there is one. At the `limit` it ends within an epoch, and what it learned there counts;
    learning rates follow the time if that passes faster than the epochs. `graph` captures a step of a whole
    batch and repeats it.
    """

    strategy: Strategy
    source: ResidentSource | StreamedSource
    valid_rows: ResidentRows
    config: NeuralParameters
    recipe: Recipe
    seed: int
    report: Report
    checkpoints: Checkpoints | None = None
    limit: TimeLimit = field(default_factory=lambda: TimeLimit(None))
    graph: InitVar[CudaGraph | None] = None

    def __post_init__(self, graph: CudaGraph | None) -> None:
        rows, size = len(self.source), self.config.batch_size
        self._steps = max(1, rows // size) if self.recipe.drops_partial_batch else -(-rows // size)
        self._epoch_rows = self._seen_rows = min(rows, self._steps * size)
        self._optimizer = make_optimizer(self.strategy.net, self.config, self.recipe)
        self._state = self._first_state()
        self._micro_rows = self.config.micro_batch_size  # fewer once memory has run out
        curve = self._state.curve
        self._start = time.perf_counter() - (curve[-1].elapsed_s if curve else 0.0)
        # The summed loss of this epoch's rows so far, on this process; a captured step keeps its address.
        self._total = torch.zeros((), dtype=torch.float64, device=self.strategy.device)
        self._fixed: FixedStep | None = None
        if graph is not None:
            self._fixed = FixedStep(
                self.strategy, self._optimizer, self.config, self.recipe, self.seed, self._total, graph
            )

    def _first_state(self) -> TrainingState:
        state = None
        if self.checkpoints is not None:
            with self.strategy.slow_work():
                state = self.checkpoints.load(self.strategy, self._optimizer)
        if state is None:
            state = TrainingState()
        elif state.epoch or state.step:
            place = f"epoch {state.epoch}" + (f" and {state.step} steps" if state.step else "")
            state.notes.append(f"resumed from a checkpoint after {place}")
        state.plain_steps = None
        return state

    @property
    def done(self) -> float:
        """The share of the epochs that is trained: before `run`, what the checkpoint brought."""
        return (self._state.epoch + self._state.step / self._steps) / self.config.epochs

    def run(self) -> TrainingState:
        """Train. Raises `TrialError` if the loss becomes NaN before any good epoch."""
        state, epochs, patience = self._state, self.config.epochs, self.config.patience
        while state.epoch < epochs and not state.ended:
            self._epoch()
            point = self._validated()
            state.epoch, state.step, state.total = point.epoch, 0, 0.0
            if not (math.isfinite(point.train) and math.isfinite(point.valid)):
                self._note_divergence(point)
                break
            state.curve.append(point)
            self.report(point.epoch / epochs, point.epoch, point.valid)
            if state.best is None or point.beats(state.best):
                state.best = point
                with self.strategy.slow_work():
                    state.best_weights = self.strategy.snapshot() if patience else {}
            elif patience and point.epoch - state.best.epoch >= patience:
                state.ended = True
            if self.limit.is_over and not state.ended and state.epoch < epochs:
                state.ended = state.out_of_time = True
                whole = self._epoch_rows
                seen = f" after {self._seen_rows:,} of {whole:,} rows" if self._seen_rows < whole else ""
                state.notes.append(f"the time limit ended training in epoch {state.epoch}{seen}")
            if self.checkpoints is not None and self.checkpoints.due(self.strategy):
                self._save(self.checkpoints)
        if patience:
            with self.strategy.slow_work():
                self.strategy.restore(state.best_weights)
        return state

    def _validated(self) -> CurvePoint:
        strategy, metric_of = self.strategy, self.strategy.objective.metric_of
        # This waits for the steps that a GPU has not taken yet, whose time is none of the validation's.
        train = metric_of(strategy.sum_over_parts(self._total) / self._seen_rows)
        begin = time.perf_counter()
        counts_errors = self.recipe.keeps_least_error and strategy.objective.task != "regression"
        valid, error = self._mean_loss(errors=counts_errors)
        now = time.perf_counter()
        self.limit.validated(now - begin)
        return CurvePoint(
            epoch=self._state.epoch + 1,
            train=train,
            valid=metric_of(valid),
            error=error,
            elapsed_s=now - self._start,
        )

    def _note_divergence(self, point: CurvePoint) -> None:
        best = self._state.best
        if best is None or not self.config.patience:
            raise TrialError(
                f"the network diverged: its {self.strategy.objective.metric} is {point.valid} after epoch "
                f"{point.epoch}. Lower neural.learning_rate (now {self.config.learning_rate:g})."
            )
        self._state.notes.append(
            f"training diverged in epoch {point.epoch}; the weights of epoch {best.epoch} are kept"
        )

    def _save(self, checkpoints: Checkpoints) -> None:
        with self.strategy.slow_work():
            checkpoints.save(self.strategy, self._optimizer, self._state)

    def _epoch(self) -> None:
        """Take the remaining steps of the epoch."""
        config, state, strategy, steps = self.config, self._state, self.strategy, self._steps
        last = state.curve[-1].valid if state.curve else None
        strategy.module.train()
        self._total.zero_()
        if strategy.leads:
            self._total += state.total  # from the steps before a restart, over all processes
        batches = self.source.batches(
            seed=self.seed,
            epoch=state.epoch + 1,
            batch_size=config.batch_size,
            first=state.step,
            part=strategy.part,
            into=lambda: self._fixed.rows if self._fixed is not None else None,
        )
        while state.step < steps:  # a partial batch may follow
            with strategy.slow_work():  # a stream may have to read
                found = next(batches, None)
            if found is None:
                break
            batch, rows = found
            step = state.epoch * steps + state.step
            done = min(1.0, max(step / (steps * config.epochs), self.limit.share))
            if not self._repeated(batch, step, done):
                set_progress(self._optimizer, config, self.recipe, done)
                if self.recipe.dropout is not None:
                    strategy.scale_dropout(self.recipe.dropout(done))
                self._total += self._gradient(batch, rows, step)
                strategy.step(self._optimizer, self.recipe.most_gradient_norm)
            state.step += 1
            self.report(min(1.0, max(self.done, self.limit.share)), state.epoch, last)
            self.limit.after_step(strategy, rows)
            if self.limit.is_over:
                self._seen_rows = min(self._epoch_rows, state.step * config.batch_size)
                return
            if self.checkpoints is not None and state.step < steps and self.checkpoints.due(strategy, step):
                state.total = strategy.sum_over_parts(self._total)
                self._save(self.checkpoints)

    def _repeated(self, batch: ResidentRows, step: int, done: float) -> bool:
        """Whether this step was taken by repeating a captured one."""
        if self._fixed is None:
            return False
        taken = self._fixed.take(self._step_on, batch, step, done)
        if self._fixed.refusal is not None:
            self._state.plain_steps, self._fixed = self._fixed.refusal, None
            self._state.notes.append(f"steps were started operation by operation: {self._state.plain_steps}")
        return taken

    def _step_on(self, batch: ResidentRows, step: int) -> None:
        """Take one step on a whole batch, plainly, in micro-batches that are not changed."""
        self._total += self._accumulated(batch, len(batch), step)
        self.strategy.step(self._optimizer, self.recipe.most_gradient_norm)

    def _gradient(self, batch: ResidentRows, rows: int, step: int) -> Tensor:
        """Compute the gradient of one batch of `rows` rows in micro-batches. Returns this part's summed loss.

        If memory runs out, it waits once for others to give some back, then tries again with smaller
        micro-batches. A process may decide that alone only if no other process waits for it.
        """
        strategy, state = self.strategy, self._state
        may_wait = strategy.num_ranks == 1
        while True:
            self._optimizer.zero_grad(set_to_none=True)
            try:
                return self._accumulated(batch, rows, step)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            release(strategy.device)
            if may_wait and wait_for_room(strategy.device, strategy.beat):
                may_wait = False
                continue
            smaller = halved(min(self._micro_rows, max(len(batch), 1)))
            self._micro_rows = smaller
            state.notes.append(
                f"out of memory in epoch {state.epoch + 1}, step {state.step + 1}: micro-batches of "
                f"{smaller} rows from there on; the batch stays {self.config.batch_size}"
            )
            if strategy.num_ranks > 1:
                raise NeedsSmallerBatches(smaller, state.notes[-1])

    def _mean_loss(self, *, errors: bool) -> tuple[float, float | None]:
        """That of the validation rows, in smaller chunks from now on if memory runs out."""
        rows = self.valid_rows
        strategy, state = self.strategy, self._state
        if strategy.forward_communicates:
            # All ranks need chunks of one size; this one is halved with the micro-batches.
            strategy.eval_rows = min(strategy.eval_rows, _EVAL_BATCHES * self._micro_rows)
        may_wait = strategy.num_ranks == 1
        while True:
            try:
                return strategy.mean_loss(rows, errors=errors)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            release(strategy.device)
            if may_wait and wait_for_room(strategy.device, strategy.beat):
                may_wait = False
                continue
            what = f"out of memory in the validation of epoch {state.epoch + 1}"
            if strategy.forward_communicates:
                smaller = halved(self._micro_rows)
                raise NeedsSmallerBatches(smaller, f"{what}: micro-batches of {smaller} rows from there on")
            strategy.eval_rows = halved(min(strategy.eval_rows, max(len(rows), 1)))
            state.notes.append(f"{what}: {strategy.eval_rows} rows at once from there on")

    def _accumulated(self, batch: ResidentRows, rows: int, step: int) -> Tensor:
        strategy = self.strategy
        # The same number on each rank, though parts may differ by a row: passes of sharded networks
        # communicate.
        share = -(-rows // strategy.data_size)
        size = share if strategy.cuts_batches else min(share, self._micro_rows)
        first = strategy.part(rows).start
        total: Tensor | None = None
        for begin in range(0, share, size):
            strategy.beat()
            micro = batch if size == share else batch.part(slice(begin, begin + size))
            place = Place(seed=self.seed, step=step, first_row=first + begin, batch_rows=rows)
            with strategy.precision.passes():
                found = strategy.backward(micro, place, last=begin + size >= share)
            total = found if total is None else total.double() + found
        assert total is not None
        return total
