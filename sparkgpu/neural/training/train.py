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
from sparkgpu.neural.rows.resident import BatchSource, ResidentRows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.checkpoint import Checkpoints, CurvePoint, TrainingState
from sparkgpu.neural.training.fixed_step import CudaGraph, FixedStep
from sparkgpu.neural.training.memory import (
    NeedsSmallerBatches,
    halved,
    is_out_of_memory,
    release,
)
from sparkgpu.neural.training.optimizer import Optimizer, Recipe, make_optimizer, set_progress
from sparkgpu.neural.training.time_limit import TimeLimit

_EVAL_BATCHES = 4  # micro-batches that are evaluated at once: without gradients a row takes less

Report = Callable[[float, int, float | None], None]
"""Called with the share of all epochs done, the number of whole epochs, and the last validation metric."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The result of training. `best_epoch` did best on validation rows, `kept_epoch` has the weights.

    `plain_steps` says why steps that were to be captured and repeated were not.
    """

    curve: tuple[CurvePoint, ...]
    best_epoch: int
    kept_epoch: int
    optimizer: str
    notes: tuple[str, ...] = field(default=())
    out_of_time: bool = False
    plain_steps: str | None = None


def train(
    strategy: Strategy,
    source: BatchSource,
    valid_rows: ResidentRows,
    *,
    config: NeuralParameters,
    recipe: Recipe,
    seed: int,
    report: Report,
    checkpoints: Checkpoints | None = None,
    limit: TimeLimit | None = None,
    graph: CudaGraph | None = None,
) -> Training:
    """Train the network that `strategy` holds.

    With `patience` p > 0 it stops after p epochs without a better validation metric and keeps the weights of
    the best epoch. With 0 it runs all epochs and keeps the last weights. It continues from the last
    checkpoint if there is one. At the `limit` it ends within an epoch, and what it learned there counts;
    learning rates follow the time if that passes faster than the epochs. `graph` captures a step of a whole
    batch and repeats it.

    Raises `TrialError` if the loss becomes NaN before any good epoch.
    """
    epochs, patience = config.epochs, config.patience
    optimizer = make_optimizer(strategy.net, config, recipe)
    progress = TrainingState(micro_rows=config.micro_batch_size, asked_rows=config.micro_batch_size)
    if checkpoints is not None:
        with strategy.slow_work():
            found = checkpoints.load(strategy, optimizer)
        if found is not None:
            place = f"epoch {found.epoch}" + (f" and {found.step} steps" if found.step else "")
            found.notes.append(f"resumed from a checkpoint after {place}")
            if found.asked_rows != config.micro_batch_size:  # what was found by running out of memory is void
                found.micro_rows = found.asked_rows = config.micro_batch_size
            progress = found
    limit = limit or TimeLimit(None)
    loop = _Loop(
        strategy=strategy, source=source, optimizer=optimizer, config=config, recipe=recipe, seed=seed,
        report=report, checkpoints=checkpoints, progress=progress, limit=limit, graph=graph,
    )  # fmt: skip
    metric_of = strategy.objective.metric_of
    counts_errors = recipe.keeps_least_error and strategy.objective.task != "regression"
    out_of_time = False
    while progress.epoch < epochs and not progress.ended:
        loop.epoch()
        begin = time.perf_counter()
        valid = loop.mean_loss(valid_rows)
        limit.validated(time.perf_counter() - begin)
        point = CurvePoint(
            epoch=progress.epoch + 1,
            train=metric_of(strategy.sum_over_parts(loop.total) / loop.rows),
            valid=metric_of(valid),
            error=loop.mean_loss(valid_rows, errors=True) if counts_errors else None,
            elapsed_s=loop.elapsed_s(),
        )
        progress.epoch, progress.step, progress.total = point.epoch, 0, 0.0
        if not (math.isfinite(point.train) and math.isfinite(point.valid)):
            if progress.best is None or not patience:
                raise TrialError(
                    f"the network diverged: its {strategy.objective.metric} is {point.valid} after epoch "
                    f"{point.epoch}. Lower neural.learning_rate (now {config.learning_rate:g})."
                )
            progress.notes.append(
                f"training diverged in epoch {point.epoch}; the weights of epoch {progress.best.epoch} "
                "are kept"
            )
            break
        progress.curve.append(point)
        report(point.epoch / epochs, point.epoch, point.valid)
        if progress.best is None or point.beats(progress.best):
            progress.best = point
            with strategy.slow_work():
                progress.best_weights = strategy.snapshot() if patience else {}
        elif patience and point.epoch - progress.best.epoch >= patience:
            progress.ended = True
        if limit.is_over and not progress.ended and progress.epoch < epochs:
            progress.ended = out_of_time = True
            progress.notes.append(_time_note(loop, progress.epoch))
        if checkpoints is not None and checkpoints.due_after_epoch():
            with strategy.slow_work():
                checkpoints.save(strategy, optimizer, progress)
    assert progress.best is not None
    if patience:
        with strategy.slow_work():
            strategy.restore(progress.best_weights)
    return Training(
        curve=tuple(progress.curve),
        best_epoch=progress.best.epoch,
        kept_epoch=progress.best.epoch if patience else progress.curve[-1].epoch,
        optimizer="AdamW (fused)" + (", Muon" if any(g["muon"] for g in optimizer.param_groups) else ""),
        notes=tuple(progress.notes),
        out_of_time=out_of_time,
        plain_steps=loop.plain_steps,
    )


def _time_note(loop: _Loop, epoch: int) -> str:
    seen = f" after {loop.rows:,} of {loop.whole_rows:,} rows" if loop.rows < loop.whole_rows else ""
    return f"the time limit ended training in epoch {epoch}{seen}"


@dataclass(kw_only=True)
class _Loop:
    """The steps of an epoch, from the position in `progress`.

    `total` is the summed loss over this epoch's rows so far, on this process, always in the same memory.
    `whole_rows` are the rows of an epoch's batches, `rows` those that this epoch has seen if time ended it.
    """

    strategy: Strategy
    source: BatchSource
    optimizer: Optimizer
    config: NeuralParameters
    recipe: Recipe
    seed: int
    report: Report
    checkpoints: Checkpoints | None
    progress: TrainingState
    limit: TimeLimit
    graph: InitVar[CudaGraph | None]

    def __post_init__(self, graph: CudaGraph | None) -> None:
        progress, rows, size = self.progress, len(self.source), self.config.batch_size
        self.steps = max(1, rows // size) if self.recipe.drops_partial_batch else -(-rows // size)
        self.whole_rows = self.rows = min(rows, self.steps * size)
        self.start = time.perf_counter() - (progress.curve[-1].elapsed_s if progress.curve else 0.0)
        self.total = torch.zeros((), dtype=torch.float64, device=self.strategy.device)
        self.plain_steps: str | None = None
        self.fixed: FixedStep | None = None
        if graph is not None:
            self.fixed = FixedStep(
                self.strategy, self.optimizer, self.config, self.recipe, self.seed, self.total, graph
            )

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.start

    def epoch(self) -> None:
        """Take the remaining steps of the epoch."""
        config, progress, strategy = self.config, self.progress, self.strategy
        steps = self.steps
        last = progress.curve[-1].valid if progress.curve else None
        strategy.module.train()
        self.total.zero_()
        if strategy.leads:
            self.total += progress.total  # from the steps before a restart, over all processes
        batches = self.source.batches(
            seed=self.seed,
            epoch=progress.epoch + 1,
            batch_size=config.batch_size,
            first=progress.step,
            part=strategy.part,
        )
        while progress.step < steps:  # a partial batch may follow
            with strategy.slow_work():  # a stream may have to read
                found = next(batches, None)
            if found is None:
                break
            batch, rows = found
            step = progress.epoch * steps + progress.step
            done = min(1.0, max(step / (steps * config.epochs), self.limit.share))
            if not self._repeated(batch, step, done):
                set_progress(self.optimizer, config, self.recipe, done)
                if self.recipe.dropout is not None:
                    strategy.scale_dropout(self.recipe.dropout(done))
                self.total += self._gradient(batch, rows, step)
                strategy.step(self.optimizer, self.recipe.most_gradient_norm)
            progress.step += 1
            done = (progress.epoch + progress.step / steps) / config.epochs
            self.report(min(1.0, max(done, self.limit.share)), progress.epoch, last)
            self.limit.after_step(strategy, rows)
            if self.limit.is_over:
                self.rows = min(self.whole_rows, progress.step * config.batch_size)
                return
            if self.checkpoints is not None and progress.step < steps and self.checkpoints.due(step):
                progress.total = strategy.sum_over_parts(self.total)
                with strategy.slow_work():
                    self.checkpoints.save(strategy, self.optimizer, progress)

    def _repeated(self, batch: ResidentRows, step: int, done: float) -> bool:
        """Whether this step was taken by repeating a captured one."""
        if self.fixed is None:
            return False
        taken = self.fixed.take(self._step_on, batch, step, done)
        if self.fixed.refusal is not None:
            self.plain_steps, self.fixed = self.fixed.refusal, None
            self.progress.notes.append(f"steps were started operation by operation: {self.plain_steps}")
        return taken

    def _step_on(self, batch: ResidentRows, step: int) -> None:
        """Take one step on a whole batch, plainly, in micro-batches that are not changed."""
        self.optimizer.zero_grad(set_to_none=True)
        self.total += self._accumulated(batch, len(batch), step)
        self.strategy.step(self.optimizer, self.recipe.most_gradient_norm)

    def _gradient(self, batch: ResidentRows, rows: int, step: int) -> Tensor:
        """Compute the gradient of one batch of `rows` rows in micro-batches. Returns this part's summed loss.

        If memory runs out, it tries again with smaller micro-batches. A process may decide that alone only if
        no other process waits for it.
        """
        strategy, progress = self.strategy, self.progress
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            try:
                return self._accumulated(batch, rows, step)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                smaller = halved(min(progress.micro_rows, max(len(batch), 1)))
            release(strategy.device)
            progress.micro_rows = smaller
            progress.notes.append(
                f"out of memory in epoch {progress.epoch + 1}, step {progress.step + 1}: micro-batches of "
                f"{smaller} rows from there on; the batch stays {self.config.batch_size}"
            )
            if strategy.num_ranks > 1:
                raise NeedsSmallerBatches(smaller, progress.notes[-1])

    def mean_loss(self, rows: ResidentRows, *, errors: bool = False) -> float:
        """The strategy's, in smaller chunks from now on if memory runs out."""
        strategy, progress = self.strategy, self.progress
        if strategy.forward_communicates:
            # All ranks need chunks of one size; this one is halved with the micro-batches.
            strategy.eval_rows = min(strategy.eval_rows, _EVAL_BATCHES * progress.micro_rows)
        while True:
            try:
                return strategy.mean_loss(rows, errors=errors)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            release(strategy.device)
            what = f"out of memory in the validation of epoch {progress.epoch + 1}"
            if strategy.forward_communicates:
                smaller = halved(progress.micro_rows)
                raise NeedsSmallerBatches(smaller, f"{what}: micro-batches of {smaller} rows from there on")
            strategy.eval_rows = halved(min(strategy.eval_rows, max(len(rows), 1)))
            progress.notes.append(f"{what}: {strategy.eval_rows} rows at once from there on")

    def _accumulated(self, batch: ResidentRows, rows: int, step: int) -> Tensor:
        strategy = self.strategy
        # The same number on each rank, though parts may differ by a row: passes of sharded networks
        # communicate.
        share = -(-rows // strategy.data_size)
        size = share if strategy.cuts_batches else min(share, self.progress.micro_rows)
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
