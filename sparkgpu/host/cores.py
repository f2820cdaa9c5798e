"""The cores that this process may use, whatever its OpenMP variables say."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Their number, at least one; a container's quota is not in it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
