"""Imports what scoring and the report need while the lanes train, so that it is ready at the end.

Not before they train: while Spark and H2O start, every core has enough to do.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from sparkgpu.host.interpreter import importing
from sparkgpu.plan.plan import Plan
from sparkgpu.rundir.paths import RunPaths

# In an order in which no single import takes long.
_FOR_THE_END = (
    "pandas", "scipy.linalg", "scipy.sparse.csgraph", "scipy.optimize",
    "scipy.stats", "joblib", "sklearn.utils", "sklearn.metrics", "matplotlib.figure", "jinja2",
    "sparkgpu.profile", "sparkgpu.present.report",
)  # fmt: skip


def import_for_the_end(paths: RunPaths, plan: Plan) -> Iterator[None]:
    """Import a piece each time it is asked, once all branches train.

    It runs in the thread that follows the lanes: two threads that import at the same time can deadlock.
    """
    while not _all_train(paths, plan):
        yield
    for name in _FOR_THE_END:
        with _interrupts_later(), importing():
            import_module(name)
        yield


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C: in code that an import runs with `exec`, it would end Python with status -2."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def _all_train(paths: RunPaths, plan: Plan) -> bool:
    """Whether a trial of each branch has begun: then its folder exists."""
    branches = {spec.branch: False for spec in plan.trials}
    for spec in plan.trials:
        branches[spec.branch] |= paths.trial(spec.name).root.exists()
    return all(branches.values())
