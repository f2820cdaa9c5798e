"""On a device that takes one process at a time, the network waits until the trees' process has ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from running import SMALL, finished

from sparkgpu.core.rundir.events import EventReader

# Trains on the CPU, which is said to be such a device.
PROGRAM = """
import sys
from dataclasses import replace
import sparkgpu.runs.run as run
choose = run.choose_devices
run.choose_devices = lambda *given, **named: tuple(
    replace(one, alone=True) for one in choose(*given, **named)
)
from sparkgpu.cli import main
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.spark
def test_the_network_trains_when_the_process_of_the_trees_has_ended(wine: Path, tmp_path: Path) -> None:
    run = finished(
        [sys.executable, "-c", PROGRAM, "run", wine, "--target", "target", "--cpu-lanes", "1", *SMALL],
        tmp_path / "out", tmp_path,
    )  # fmt: skip
    assert {trial["status"] for trial in run.metrics["trials"]} == {"done"}
    events = EventReader(run.paths.lane(0).events("neural")).new()
    phases = {event.text: event.at for event in events if event.kind == "phase"}
    ended_at = run.paths.lane(0).ended("trees").stat().st_mtime
    assert phases["waiting for the trees"] < ended_at <= phases["training"]
