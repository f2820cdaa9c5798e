"""When trees have to stop growing, so that all about their trial is done in time."""

from __future__ import annotations

import time

from sparkgpu.core.plan.time_limit import fit_s_of_trees
from sparkgpu.trials.engine import TreesTrial


def fit_until(trial: TreesTrial) -> float | None:
    """In seconds since the epoch; None if the run has no time limit."""
    if trial.until is None:
        return None
    now = time.time()
    return now + fit_s_of_trees(trial.until - now, trial.schema)
