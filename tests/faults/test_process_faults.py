"""Processes of a run are killed, asked to end, and stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from injected import CASE_S, Metrics, injected

from sparkgpu.core.config.registry.engines import Branch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(CASE_S)]


@pytest.mark.fault
@pytest.mark.parametrize(("branch", "phase"), [("trees", "training"), ("neural", "training")])
def test_a_killed_worker_costs_its_trial_which_a_resumed_run_makes_up(
    branch: Branch, phase: str, wine: Path, undisturbed: Callable[..., Metrics], tmp_path: Path
) -> None:
    role = "tree worker" if branch == "trees" else "neural worker"
    with injected(f"SIGKILL of the {role}", phase, wine, tmp_path) as case:
        case.reach(phase, branch)
        case.send(signal.SIGKILL, case.process(role))
        case.ends("resumable", code=5, said="was killed by signal 9", whole=undisturbed())
