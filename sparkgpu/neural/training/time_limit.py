"""The end of training where a run has a time limit: early enough to validate once more and to predict.

All ranks must end at the same step and have the same learning rate. So they agree on the time now and then,
and each acts only on what was agreed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sparkgpu.neural.strategies.base import Strategy

_SPARE = 1.3
_SAVING_S = 1.0
_FORWARD_SHARE = 0.4
"""The part of a step's time that its forward pass takes; it is known before the first validation."""
_AGREE_EVERY_S = 0.25


class TimeLimit:
    """Training ends so that `predicted_rows` rows are predicted before `until`, by `time.monotonic`.

    `valid_rows` of them are also validated after training. Without `until` nothing ends.
    """

    def __init__(
        self,
        until: float | None,
        *,
        valid_rows: int = 0,
        predicted_rows: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._until = until
        self._clock = clock
        self._rows = _SPARE * (valid_rows + predicted_rows)
        self._valid_rows = valid_rows
        self._began = clock()
        self._row_s = 0.0
        self._steps = 0
        self._every = 1
        self.share = 0.0
        """The agreed share of the time that has passed; 1 or more at the end."""

    @property
    def is_over(self) -> bool:
        return self.share >= 1.0

    def validated(self, seconds: float) -> None:
        """One validation took so long, which tells how long predictions take."""
        if self._valid_rows:
            self._row_s = seconds / self._valid_rows

    def after_step(self, strategy: Strategy, rows: int) -> None:
        """After each step of `rows` rows, on every rank."""
        if self._until is None:
            return
        self._steps += 1
        if self._steps % self._every:
            return
        now = self._clock()
        if not self._row_s:
            step_s = (now - self._began) / self._steps
            guessed = self._rows * _FORWARD_SHARE * step_s / max(rows, 1)
        else:
            guessed = self._rows * self._row_s
        whole = self._until - _SAVING_S - guessed - self._began
        self.share = strategy.greatest((now - self._began) / whole if whole > 0 else 1.0)
        if strategy.num_ranks > 1 and self._steps == self._every:
            # Agreeing costs a message: from now on about four times in a second, by the speed agreed on.
            step_s = strategy.greatest((now - self._began) / self._steps)
            self._every = max(1, int(_AGREE_EVERY_S / max(step_s, 1e-6)))
