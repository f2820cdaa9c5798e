"""The time of a worker's trials if the run has a time limit.

Each model's first trials are carried out in any case and share the time that is left. Trials with further
seeds begin only if enough time is left for a model that is worth having.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sparkgpu.plan.trial_spec import TrialSpec

_SEARCH_SHARE = 3
"""A search gets so many times the time of a single trial."""
_ENOUGH = 0.6
"""A further seed begins if so much is left of the time that the one before it took; it then learns faster."""


class TimeShares:
    """When each of a worker's `trials` has to be done; `ends` is the end of all of them (None: no limit)."""

    def __init__(
        self, trials: Sequence[TrialSpec], ends: float | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._ends = ends
        self._clock = clock
        first_seed = min((spec.seed for spec in trials), default=0)
        self._first = {
            spec.name: _SEARCH_SHARE if spec.settings else 1 for spec in trials if spec.seed == first_seed
        }
        self._took_s: dict[str, float] = {}
        self._began = 0.0

    def fits(self, spec: TrialSpec) -> bool:
        """Whether there is time for this trial."""
        if self._ends is None or spec.name in self._first:
            return True
        took_s = self._took_s.get(spec.model)
        return took_s is not None and self._clock() + _ENOUGH * took_s <= self._ends

    def begin(self, spec: TrialSpec) -> float | None:
        """The trial begins; returns when it has to be done, in seconds since the epoch."""
        self._began = self._clock()
        if self._ends is None or spec.name not in self._first:
            return self._ends
        own = self._first[spec.name]
        names = list(self._first)
        left = sum(self._first[name] for name in names[names.index(spec.name) :])
        return self._began + (self._ends - self._began) * own / left

    def end(self, spec: TrialSpec) -> None:
        """The trial is over."""
        self._took_s[spec.model] = self._clock() - self._began
