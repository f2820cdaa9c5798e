"""The time of a worker's trials if the run has a time limit.

Each model's first trials are carried out in any case and share the time that is left. Trials with further
seeds only begin if they are likely to end in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sparkgpu.plan.plan import TrialSpec

_LONGER = 1.15
"""A trial may take so many times as long as the one before it."""


class TimeShares:
    """When each of a worker's `trials` has to be done; `ends` is the end of all of them (None: no limit)."""

    def __init__(
        self, trials: Sequence[TrialSpec], ends: float | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._ends = ends
        self._clock = clock
        first_seed = min((spec.seed for spec in trials), default=0)
        self._first = [spec.name for spec in trials if spec.seed == first_seed]
        self._took_s: dict[str, float] = {}
        self._began = 0.0

    def fits(self, spec: TrialSpec) -> bool:
        """Whether there is time for this trial."""
        if self._ends is None or spec.name in self._first:
            return True
        took_s = self._took_s.get(spec.model)
        return took_s is not None and self._clock() + _LONGER * took_s <= self._ends

    def begin(self, spec: TrialSpec) -> float | None:
        """The trial begins; returns when it has to be done, in seconds since the epoch."""
        self._began = self._clock()
        if self._ends is None or spec.name not in self._first:
            return self._ends
        left = len(self._first) - self._first.index(spec.name)
        return self._began + (self._ends - self._began) / left

    def end(self, spec: TrialSpec) -> None:
        """The trial is over."""
        self._took_s[spec.model] = self._clock() - self._began
