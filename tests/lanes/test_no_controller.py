"""Slurm's commands exist, but its controller does not answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]

CONFIGURATION = """
ClusterName=gone
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=1
MessageTimeout=1
NodeName=localhost
PartitionName=any Nodes=localhost
"""


@pytest.mark.skipif(
    shutil.which("squeue") is None, reason="no squeue here; the package slurm-client provides it"
)
@pytest.mark.parametrize("words", [["status"], ["status", "7"]])
def test_a_slurm_that_does_not_answer_is_told_from_a_job_that_is_gone(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
) -> None:
    (tmp_path / "slurm.conf").write_text(CONFIGURATION)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    code, _, said = call("slurm", *words)
    assert code == 3
    assert "no Slurm controller answers here (" in said and "login node" in said and "error:" not in said
