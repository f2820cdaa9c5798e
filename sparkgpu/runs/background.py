"""What the run's own process does while its lanes train.

It imports for the end, and on a notice that its time is nearly over it has the networks saved.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from sparkgpu.core.host.interpreter import importing
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.paths import RunPaths

_POLL_S = 0.1


def save_networks(paths: RunPaths, plan: Plan, *, within_s: float) -> None:
    """Ask for the checkpoints and wait for them, at most `within_s` seconds.

    A network that finishes in that time needs none. Without a table, nothing trains yet.
    """
    if not paths.schema.exists():
        return
    training = _in_training(paths, plan)
    before = {spec.name: _checkpoints(paths, spec) for spec in training}
    write_text(paths.checkpoint_request, "")
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and any(
        not _is_over(paths, spec) and _checkpoints(paths, spec) <= before[spec.name] for spec in training
    ):
        time.sleep(_POLL_S)


def _in_training(paths: RunPaths, plan: Plan) -> list[TrialSpec]:
    """The first unfinished network on each lane."""
    left = [spec for spec in plan.trials if spec.branch == "neural" and not _is_over(paths, spec)]
    return list({spec.lane: spec for spec in reversed(left)}.values())


def _is_over(paths: RunPaths, spec: TrialSpec) -> bool:
    trial = paths.trial(spec.name)
    return trial.done.exists() or trial.error.exists()


def _checkpoints(paths: RunPaths, spec: TrialSpec) -> set[Path]:
    return set(paths.trial(spec.name).checkpoints.glob("epoch-*"))


# In an order in which no single import takes long.
_FOR_THE_END = (
    "pandas", "scipy.linalg", "scipy.sparse.csgraph", "scipy.optimize",
    "scipy.stats", "joblib", "sklearn.utils", "sklearn.metrics", "matplotlib.figure", "jinja2",
    "sparkgpu.score.profile", "sparkgpu.present.report",
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


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay signals to end: in code that an import runs with `exec`, it would end Python with status -2."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def _all_train(paths: RunPaths, plan: Plan) -> bool:
    """Whether a trial of each branch has begun: then its folder exists."""
    begun = {spec.branch for spec in plan.trials if paths.trial(spec.name).root.exists()}
    return begun == {spec.branch for spec in plan.trials}
