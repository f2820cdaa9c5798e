"""Ends a run with little loss: each network in training writes a checkpoint first.

A batch system gives notice some minutes before a job's time is over. Trees have no checkpoint, so a resumed
run trains them again.
"""

from __future__ import annotations

import time
from pathlib import Path

from sparkgpu.plan.plan import Plan
from sparkgpu.plan.trial_spec import TrialSpec
from sparkgpu.rundir.files import write_text
from sparkgpu.rundir.paths import RunPaths

SAVE_WITHIN_S = 120.0
"""Less than the notice period in the scripts of `sparkgpu slurm write`."""

_POLL_S = 0.1


def save_networks(paths: RunPaths, plan: Plan, *, within_s: float = SAVE_WITHIN_S) -> None:
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
    found: dict[int, TrialSpec] = {}
    for spec in plan.trials:
        if spec.branch == "neural" and not _is_over(paths, spec):
            found.setdefault(spec.lane, spec)
    return list(found.values())


def _is_over(paths: RunPaths, spec: TrialSpec) -> bool:
    trial = paths.trial(spec.name)
    return trial.done.exists() or trial.error.exists()


def _checkpoints(paths: RunPaths, spec: TrialSpec) -> set[Path]:
    return set(paths.trial(spec.name).checkpoints.glob("epoch-*"))
