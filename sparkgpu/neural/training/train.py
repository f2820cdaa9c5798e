"""The training loop: batches, steps, validation after each epoch, early stopping.

Within an epoch, nothing waits for the device: losses are summed there and read once per epoch. Everything
follows from the seed and the place in training, never from a random state. So a run resumed from a checkpoint
continues exactly as if it had not stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.errors import TrialError
from sparkgpu.neural.nets.dropout import Place
from sparkgpu.neural.rows.resident import BatchSource, ResidentRows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.checkpoint import Checkpoints, CurvePoint, TrainingState
from sparkgpu.neural.training.fixed_step import FixedStep, Repeat
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
    repeat: Repeat | None = None,
) -> Training:
    """Train the network that `strategy` holds.

    With `patience` p > 0 it stops after p epochs without a better validation metric and keeps the weights of
    the best epoch. With 0 it runs all epochs and keeps the last weights. It continues from the last
    checkpoint if there is one. At the `limit` it ends within an epoch, and what it learned there counts;
    learning rates follow the time if that passes faster than the epochs. `repeat` captures a step of a whole
    batch and repeats it.

    Raises `TrialError` if the loss becomes NaN before any good epoch.
    """
    epochs, patience = config.epochs, config.patience
    optimizer = make_optimizer(strategy.module, config, recipe)
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
    loop = _Loop(strategy, source, optimizer, config, recipe, seed, report, checkpoints, progress, limit)
    if repeat is not None:
        loop.repeat_with(repeat)
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


class _Loop:
    """The steps of an epoch, from the position in `progress`."""

    def __init__(
        self,
        strategy: Strategy,
        source: BatchSource,
        optimizer: Optimizer,
        config: NeuralParameters,
        recipe: Recipe,
        seed: int,
        report: Report,
        checkpoints: Checkpoints | None,
        progress: TrainingState,
        limit: TimeLimit,
    ) -> None:
        self._limit = limit
        self._strategy = strategy
        self._source = source
        self._optimizer = optimizer
        self._config = config
        self._recipe = recipe
        self._seed = seed
        self._report = report
        self._checkpoints = checkpoints
        self._progress = progress
        rows, size = len(source), config.batch_size
        self._steps = max(1, rows // size) if recipe.drops_partial_batch else -(-rows // size)
        self.whole_rows = min(rows, self._steps * size)
        """The rows of an epoch's batches."""
        self.rows = self.whole_rows
        """Those that this epoch has seen, if time ended it."""
        self._start = time.perf_counter() - (progress.curve[-1].elapsed_s if progress.curve else 0.0)
        self.total = torch.zeros((), dtype=torch.float64, device=strategy.device)
        """The summed loss over this epoch's rows so far, on this process; always in the same memory."""
        self._fixed: FixedStep | None = None
        self.plain_steps: str | None = None

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._start

    def epoch(self) -> None:
        """Take the remaining steps of the epoch."""
        config, progress, strategy = self._config, self._progress, self._strategy
        steps = self._steps
        last = progress.curve[-1].valid if progress.curve else None
        strategy.module.train()
        self.total.zero_()
        if strategy.leads:
            self.total += progress.total  # from the steps before a restart, over all processes
        batches = self._source.batches(
            seed=self._seed,
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
            done = min(1.0, max(step / (steps * config.epochs), self._limit.share))
            if not self._repeated(batch, step, done):
                set_progress(self._optimizer, config, self._recipe, done)
                if self._recipe.dropout is not None:
                    strategy.scale_dropout(self._recipe.dropout(done))
                self.total += self._gradient(batch, rows, step)
                strategy.step(self._optimizer, self._recipe.most_gradient_norm)
            progress.step += 1
            done = (progress.epoch + progress.step / steps) / config.epochs
            self._report(min(1.0, max(done, self._limit.share)), progress.epoch, last)
            self._limit.after_step(strategy, rows)
            if self._limit.is_over:
                self.rows = min(self.whole_rows, progress.step * config.batch_size)
                return
            if self._checkpoints is not None and progress.step < steps and self._checkpoints.due(step):
                progress.total = strategy.sum_over_parts(self.total)
                with strategy.slow_work():
                    self._checkpoints.save(strategy, self._optimizer, progress)

    def repeat_with(self, repeat: Repeat) -> None:
        """From now on, capture a step of a whole batch and repeat it."""

        def work(batch: ResidentRows, step: int) -> None:
            self._optimizer.zero_grad(set_to_none=True)
            self.total += self._accumulated(batch, len(batch), step)
            self._strategy.step(self._optimizer, self._recipe.most_gradient_norm)

        self._fixed = FixedStep(
            self._strategy, self._optimizer, self._config, self._recipe, self._seed, self.total, repeat, work
        )

    def _repeated(self, batch: ResidentRows, step: int, done: float) -> bool:
        """Whether this step was taken by repeating a captured one."""
        if self._fixed is None:
            return False
        taken = self._fixed.take(batch, step, done)
        if self._fixed.refusal is not None:
            self.plain_steps, self._fixed = self._fixed.refusal, None
            self._progress.notes.append(f"steps were started operation by operation: {self.plain_steps}")
        return taken

    def _gradient(self, batch: ResidentRows, rows: int, step: int) -> Tensor:
        """Compute the gradient of one batch of `rows` rows in micro-batches. Returns this part's summed loss.

        If memory runs out, it tries again with smaller micro-batches. A process may decide that alone only if
        no other process waits for it.
        """
        strategy, progress = self._strategy, self._progress
        while True:
            self._optimizer.zero_grad(set_to_none=True)
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
                f"{smaller} rows from there on; the batch stays {self._config.batch_size}"
            )
            if strategy.num_ranks > 1:
                raise NeedsSmallerBatches(smaller, progress.notes[-1])

    def mean_loss(self, rows: ResidentRows, *, errors: bool = False) -> float:
        """The strategy's, in smaller chunks from now on if memory runs out."""
        strategy, progress = self._strategy, self._progress
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
        strategy = self._strategy
        # The same number on each rank, though parts may differ by a row: passes of sharded networks
        # communicate.
        share = -(-rows // strategy.data_size)
        size = share if strategy.cuts_batches else min(share, self._progress.micro_rows)
        first = strategy.part(rows).start
        total: Tensor | None = None
        for begin in range(0, share, size):
            strategy.beat()
            micro = batch if size == share else batch.part(slice(begin, begin + size))
            place = Place(seed=self._seed, step=step, first_row=first + begin, batch_rows=rows)
            found = strategy.backward(micro, place, last=begin + size >= share)
            total = found if total is None else total.double() + found
        assert total is not None
        return total
