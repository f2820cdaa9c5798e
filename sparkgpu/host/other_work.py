"""How much of the processors other work takes while something is timed here.

Limits: it is the time that the system counts as busy or stolen, without that of this process and of its
children that have ended, so a child that goes on counts as other work. In a container the system's figures
are those of the whole machine.
"""

from __future__ import annotations

import os
import time

import psutil

DISTURBING_SHARE = 0.1
"""Of the cores: timings on cores of which other work took more are not to be believed."""


class OtherWork:
    """Counts from its creation on."""

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._at = _busy_s(), _own_s(), time.monotonic()

    def cores(self) -> float:
        """How many cores other work has taken on average; never negative."""
        elapsed = max(1e-9, time.monotonic() - self._at)
        return max(0.0, (_busy_s() - self._busy_s - (_own_s() - self._own_s)) / elapsed)


def _busy_s() -> float:
    found = psutil.cpu_times()
    return sum(getattr(found, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq", "steal"))


def _own_s() -> float:
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system
