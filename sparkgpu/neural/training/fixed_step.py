"""A whole training step on memory that stays, so that a device can repeat it without Python.

A step of a small network starts a hundred kernels, and starting them takes longer than they do. A CUDA graph
starts them all at once. It repeats the addresses and the numbers of the step that it captured. So whatever
differs between steps lies in memory that stays, and is written there before each one: the batch, the draws
of dropout, the learning rates. Nothing of it waits for the device.

Limits: batches of one size, so the smaller last one of an epoch is a plain step; one process; no scaled
losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.errors import TrialError
from sparkgpu.neural.nets.dropout import Dropout, HeldMask, Place, dropouts
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.memory import is_out_of_memory, release
from sparkgpu.neural.training.optimizer import HeldRates, Optimizer, Recipe, rates

_WARM_STEPS = 3  # libraries find their algorithms and take their memory before anything is captured
_MOST_APART = 0.1  # of what a step moves; a number that a capture kept makes half of it or more

Work = Callable[[], None]


class Repeat(Protocol):
    """What captures work and repeats it, as a CUDA graph does.

    `needs_proof` means that a first repetition is compared with the work itself.
    """

    needs_proof: bool

    def warm(self, work: Work) -> None:
        """Do the work as it would be captured."""
        ...

    def capture(self, work: Work) -> None:
        """Learn the work, without doing it."""
        ...

    def replay(self) -> None:
        """Do the work that was captured."""
        ...

    def drop(self) -> None:
        """Give back what a capture holds; nothing is repeated any more."""
        ...


class FixedStep:
    """Steps of `config.batch_size` rows: the first ones plainly, then one is captured and repeated.

    `work(batch, step)` takes one step on a batch and adds its loss to `total`.
    """

    def __init__(
        self,
        strategy: Strategy,
        optimizer: Optimizer,
        config: NeuralParameters,
        recipe: Recipe,
        seed: int,
        total: Tensor,
        repeat: Repeat,
        work: Callable[[ResidentRows, int], None],
    ) -> None:
        self._strategy = strategy
        self._optimizer = optimizer
        self._config = config
        self._recipe = recipe
        self._seed = seed
        self._total = total
        self._repeat = repeat
        self._work = work
        self._rates = HeldRates(optimizer.param_groups, recipe, strategy.device)
        self._masks: list[tuple[Dropout, HeldMask]] = [
            (module, HeldMask()) for module in dropouts(strategy.module) if module.drops
        ]
        self._rows: ResidentRows | None = None
        self._taken = 0
        self._is_captured = False
        self.refusal: str | None = None
        """Why no step is repeated any more."""

    def take(self, batch: ResidentRows, step: int, done: float) -> bool:
        """Take a step on `batch`. False means that nothing has changed and the step must be taken plainly."""
        if self.refusal is not None or len(batch) != self._config.batch_size:
            return False
        try:
            with self._held():
                self._feed(batch, step, done)
                assert self._rows is not None
                work = partial(self._work, self._rows, step)
                if self._taken < _WARM_STEPS:
                    self._repeat.warm(work)
                    self._taken += 1
                    return True
                if not self._is_captured:
                    self._repeat.capture(work)
                    if self._repeat.needs_proof and not self._is_proven(work, batch, step, done):
                        return self._refuse("a repeated step gave other weights than a plain one")
                    self._is_captured = True
                self._repeat.replay()
        except (RuntimeError, TrialError) as error:
            if self._is_captured or (self._taken < _WARM_STEPS and not is_out_of_memory(error)):
                raise
            if is_out_of_memory(error) or isinstance(error, TrialError):
                refusal = "the device's memory does not hold a captured step"
            else:
                refusal = f"capturing failed ({str(error).splitlines()[0]})"
        else:
            return True
        return self._refuse(refusal)

    def _refuse(self, reason: str) -> bool:
        self.refusal = reason
        self._rows = None
        self._repeat.drop()
        release(self._strategy.device)
        return False

    def _feed(self, batch: ResidentRows, step: int, done: float) -> None:
        """Write what is particular to this step to the memory that stays."""
        if self._rows is None:
            self._rows = batch.copied()
        else:
            self._rows.overwrite(batch)
        self._rates.set(*rates(self._config, self._recipe, done))
        if self._recipe.dropout is not None:
            self._strategy.scale_dropout(self._recipe.dropout(done))
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
            rate, decay = rates(self._config, self._recipe, done)
            self._rates.set(rate / 2, decay * 2)
            self._draw(step + 1)
            self._rows.overwrite(batch.rolled())
            self._repeat.warm(work)
            expected = _copies(changed)
            _restore(changed, before)
            self._repeat.replay()
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
