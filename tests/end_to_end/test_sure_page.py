"""What docs/sure.md shows does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import COMMAND, REPOSITORY, SMALL, write_table

import sparkgpu
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.sklearn import TreesRegressor

pytestmark = [pytest.mark.process, pytest.mark.slow]

PAGE = (REPOSITORY / "docs" / "sure.md").read_text(encoding="utf-8")
FEW = (*SMALL, "--set", "trees.engine=xgboost", "--cpu-lanes", "1")


def test_the_commands_and_lines_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pd.read_parquet(write_table("diabetes", tmp_path)).rename(columns={"target": "price"})
    rows[:300].to_parquet("houses.parquet")
    rows[300:].to_parquet("new.parquet")
    (commands,), (lines,) = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S) for kind in ("bash", "python"))
    (again,) = re.findall(r"`(sparkgpu run --resume .*?)`", PAGE)
    for line in [*commands.splitlines(), again]:
        words = shlex.split(line)[1:]
        more = FEW if words[0] == "run" and "--resume" not in words else ()
        told = subprocess.run([*COMMAND, *words, *more], capture_output=True, text=True, timeout=300)
        assert told.returncode == 0, told.stderr
    found = pd.read_parquet("predictions.parquet")
    assert [*found.columns] == ["prediction", "lower", "upper"]
    frame, price = rows[300:].drop(columns="price"), rows["price"][300:]
    assert 0.75 < price.reset_index(drop=True).between(found["lower"], found["upper"]).mean() <= 1
    seen = {"sparkgpu": sparkgpu, "TreesRegressor": TreesRegressor, "frame": frame, "price": price}
    exec(lines, seen)
    assert seen["model"].predict_interval(frame) == pytest.approx(found[["lower", "upper"]].to_numpy())
    for model in read_results(RunPaths(root=tmp_path / "reports" / "houses")).models:
        assert model.intervals is not None and np.isfinite(model.intervals.test.coverage)
