"""When a GPU counts as idle: busy for less than a tenth of the time, at the median of enough samples.

Limits: NVML's utilisation is the share of time in which anything ran on the GPU, however little of it; a busy
GPU may still be badly used. Slices by MIG and some virtual GPUs do not tell it, and never count as idle.
"""

from __future__ import annotations

from collections.abc import Iterable

IDLE_PERCENT = 10.0
LEAST_SAMPLES = 20


def idle_percent(utilisation: Iterable[float | None]) -> float | None:
    """The median of samples taken while something trained on a GPU, in per cent; None if it did not idle."""
    known = sorted(value for value in utilisation if value is not None)
    if len(known) < LEAST_SAMPLES:
        return None
    median = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    return median if median < IDLE_PERCENT else None
