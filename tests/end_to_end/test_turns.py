"""On a device that takes one process at a time, the network waits until the trees' process has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    out = tmp_path / "out"
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", str(wine), "--target", "target", "--cpu-lanes", "1",
         "--out", str(out), "--set", "trees.ntrees=30", "--set", "neural.epochs=3", "--quiet"],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    metrics = json.loads((out / "metrics.json").read_text())
    assert {trial["status"] for trial in metrics["trials"]} == {"done"}
    lines = (out / "lanes" / "0" / "neural.events.jsonl").read_text().splitlines()
    phases = {event["text"]: event["at"] for event in map(json.loads, lines) if event["kind"] == "phase"}
    ended_at = (out / "lanes" / "0" / "trees.ended").stat().st_mtime
    assert phases["waiting for the trees"] < ended_at <= phases["training"]
