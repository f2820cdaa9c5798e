"""The types of the package in a stranger's project: mypy in strict mode, without our settings."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from running import REPOSITORY

PROGRAM = """\
from pathlib import Path

import pandas as pd

import sparkgpu
from sparkgpu.sklearn import TreesClassifier


def leader(table: pd.DataFrame, folder: Path) -> str:
    result = sparkgpu.run(table, target="late", cpu_lanes=1, out=folder, config={"trees.ntrees": 60})
    reveal_type(result)
    reveal_type(result.verdict)
    reveal_type(result.leaderboard())
    model = result.load("blend")
    reveal_type(model)
    reveal_type(model.predict(table))
    reveal_type(sparkgpu.read_run(folder).report)
    reveal_type(sparkgpu.load(folder, "trees").explain(table))
    reveal_type(TreesClassifier(engine="lightgbm"))
    return result.verdict


sparkgpu.run(target=3)
"""
TYPES = (
    "sparkgpu.present.run_result.RunResult", "str", "DataFrame", "sparkgpu.predict.fitted.FittedModel",
    "numpy.ndarray", "pathlib.Path", "DataFrame", "sparkgpu.sklearn.TreesClassifier",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(600)
def test_a_strangers_strict_mypy_knows_what_every_public_call_takes_and_gives(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python3.*/site-packages")
    shutil.copytree(REPOSITORY / "sparkgpu", packages / "sparkgpu", ignore=shutil.ignore_patterns("*.pyc"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-pretty"]
    done = subprocess.run(
        [*command, "--python-executable", str(venv / "bin" / "python"), "program.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    shown = [line.partition('Revealed type is "')[2] for line in lines if "Revealed type" in line]
    assert [found for found, kind in zip(shown, TYPES, strict=True) if kind not in found] == [], done.stdout
    wrong = [line for line in lines if ": error:" in line]
    assert len(wrong) == 1 and 'incompatible type "int"' in wrong[0], done.stdout
