"""Every strategy trains the same network as `single`, with 4 gloo processes started once for all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks_equivalence import CASES, STRATEGIES, supports

MOST_DIFFERENCE = 1e-5


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("ranks") / "found.json"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
        str(Path(__file__).with_name("ranks_equivalence.py")), str(out),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr[-3000:]
    results: dict[str, Any] = json.loads(out.read_text())
    return results


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("case", CASES)
def test_gradients_losses_and_weights_are_those_of_one_device(
    found: dict[str, Any], case: str, strategy: str
) -> None:
    if not supports(case, strategy):
        assert f"{case}: {strategy}" not in found
        return
    result = found[f"{case}: {strategy}"]
    assert result["gradients"] < MOST_DIFFERENCE
    assert result["curve"] < MOST_DIFFERENCE
    assert result["weights"] < MOST_DIFFERENCE
    assert result["learned"] > 0
