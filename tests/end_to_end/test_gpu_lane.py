"""Tests that need a GPU; the commands are the same as on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.spark]


def test_a_gpu_lane_trains_trees_with_gpu_hist_and_the_network_on_its_device(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "sparkgpu", "run", "--gpus", "0", "--out", str(out), "--quiet"]
    command += ["--set", "trees.ntrees=50", "--set", "neural.epochs=2"]
    subprocess.run(command, check=True, timeout=280)
    trials = {
        trial["model"]: trial
        for trial in json.loads((out / "metrics.json").read_text(encoding="utf-8"))["trials"]
    }
    assert trials["trees"]["native_parameters"]["tree_method"] == "gpu_hist"
    assert trials["neural"]["device_proof"]["parameters_device"] == ["cuda:0"]
    assert trials["neural"]["peak_device_bytes"] > 0
    assert [trial["devices"] for trial in trials.values()] == [["cuda:0"], ["cuda:0"]]
