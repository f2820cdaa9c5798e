"""The lines of docs/compare.md run: ours, and those of other libraries where they are installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import REPOSITORY

pytestmark = [pytest.mark.process, pytest.mark.slow]

PAGE = (REPOSITORY / "docs" / "compare.md").read_text(encoding="utf-8")
SECTIONS = {
    name: tuple(re.findall(r"```python title=\".*?\"\n(.*?)```", text, re.S))
    for name, text in re.findall(r"^## (.*?)$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}
THEIRS = {
    "scikit-learn": "sklearn",
    "Sparkling Water": "pysparkling",
    "AutoGluon": "autogluon",
    "Lightning": "lightning",
}


def write_people(folder: Path) -> None:
    random = np.random.default_rng(3)
    age, job = random.uniform(18, 80, 1_500), random.choice(["baker", "judge", "nurse"], 1_500)
    high = age / 40 + (job == "judge") + random.normal(0, 0.5, 1_500) > 1.8
    people = pd.DataFrame({"age": age, "job": job, "income": np.where(high, "high", "low")})
    people[:1_200].to_parquet(folder / "people.parquet")
    people[1_200:].to_parquet(folder / "people-test.parquet")


def run_in(folder: Path, lines: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", lines], cwd=folder, capture_output=True, text=True, timeout=280
    )
    assert found.returncode == 0, found.stderr[-3000:]


def test_each_library_of_the_page_has_its_lines_and_ours() -> None:
    assert SECTIONS.keys() == THEIRS.keys()
    assert all("sparkgpu" not in theirs and "sparkgpu" in ours for theirs, ours in SECTIONS.values())


@pytest.mark.spark
@pytest.mark.parametrize("name", THEIRS)
def test_our_lines_run_as_they_are(name: str, tmp_path: Path) -> None:
    write_people(tmp_path)
    run_in(tmp_path, SECTIONS[name][1])


@pytest.mark.spark
@pytest.mark.parametrize("name", THEIRS)
def test_their_lines_run_as_they_are(name: str, tmp_path: Path) -> None:
    if not importlib.util.find_spec(THEIRS[name]):
        pytest.skip(f"{name} is not installed")
    write_people(tmp_path)
    run_in(tmp_path, SECTIONS[name][0])
