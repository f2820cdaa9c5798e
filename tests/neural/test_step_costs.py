"""What a step costs a GPU, counted on tensors without memory: bytes, kernels and what is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEP = Path(__file__).parents[2] / "benchmarks/gpu/step.py"


@pytest.mark.slow
@pytest.mark.process
def test_a_step_of_tabm_moves_less_than_half_of_what_it_moved() -> None:
    done = subprocess.run(
        [sys.executable, str(STEP), "--networks", "tabm"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    cells = [cell.strip() for cell in done.stdout.splitlines()[-1].split("|")]
    kernels, megabytes = int(cells[3]), int(cells[5].replace(",", ""))
    # 166 kernels and 3,312 MB while dropout held factors in float32 and Muon stepped matrix by matrix.
    assert cells[1] == "tabm" and kernels <= 130 and megabytes <= 0.5 * 3_312
