"""What docs/rules.md and docs/checks.md show does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import COMMAND, REPOSITORY, SMALL

import sparkgpu
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths

pytestmark = [pytest.mark.process, pytest.mark.slow]

PAGE = (REPOSITORY / "docs" / "rules.md").read_text(encoding="utf-8")
CHECKS = (REPOSITORY / "docs" / "checks.md").read_text(encoding="utf-8")
FEW = (*SMALL[:2], "--set", "trees.engine=xgboost", "--cpu-lanes", "1")
ROWS = 1_500


def people() -> pd.DataFrame:
    """Income rises with age and falls with debt, both with waves; sex moves it, and height tells sex."""
    random = np.random.default_rng(1)
    age, debt = random.uniform(18, 80, ROWS), random.uniform(0, 50, ROWS)
    sex = random.choice(["f", "m"], ROWS)
    height = 165 + 14 * (sex == "m") + random.normal(0, 4, ROWS)
    income = age + 9 * np.sin(age / 3) - debt - 9 * np.sin(debt / 3) + 20 * (sex == "m")
    region = random.choice(["east", "west"], ROWS)
    columns = {"age": age, "debt": debt, "sex": sex, "height": height, "region": region}
    return pd.DataFrame(columns).assign(income=income + random.normal(0, 5, ROWS))


def run_of(page: str) -> list[str]:
    """The words of the page's first command."""
    return shlex.split(re.findall(r"```bash\n(.*?)```", page, re.S)[0])[1:]


def test_the_rules_of_the_page_are_kept_and_its_withheld_column_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    people().to_parquet("people.parquet")
    Path("rules.toml").write_text(re.findall(r"```toml\n(.*?)```", PAGE, re.S)[0])
    told = subprocess.run([*COMMAND, *run_of(PAGE), *FEW], capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    assert "networks cannot keep" in told.stderr + told.stdout
    paths = RunPaths(root=tmp_path / "reports" / "ruled")
    model, frame = sparkgpu.load(paths.root), people().drop(columns=["income", "sex"])
    older, deeper = frame.assign(age=frame["age"] + 5), frame.assign(debt=frame["debt"] + 5)
    assert (model.predict(older) >= model.predict(frame)).all()
    assert (model.predict(deeper) <= model.predict(frame)).all()
    (withheld,) = read_json(paths.profile)["withheld"]
    assert (withheld["column"], withheld["proxies"][0]["column"]) == ("sex", "height")
    assert withheld["told"] > 0.5
    by_name = {one.name: one for one in read_results(paths).models}
    (groups,) = by_name["trees"].groups
    gap = groups.gaps["mean_prediction"]
    assert (groups.column, gap.greatest, gap.least) == ("sex", "sex = m", "sex = f") and gap.ci95[0] > 0
    assert by_name["neural"].status == "left out"
    page = (paths.root / "report" / "report.md").read_text()
    assert "trees by sex" in page and "| sex | " in page


def test_a_planted_leak_is_named_and_ends_the_run_of_the_page_with_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = people()
    frame.assign(copied=frame["income"] + 1).to_parquet("people.parquet")
    words = [*COMMAND, *run_of(CHECKS), *SMALL, *FEW]
    told = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert told.returncode == 4, told.stderr
    assert "report.fail_on: leak failed: " in told.stderr and "docs/checks.md#leak" in told.stderr
    paths = RunPaths(root=tmp_path / "reports" / "checked")
    found = {one.name: one for one in read_results(paths).checks}
    assert {name: one.status for name, one in found.items()} == {
        "leak": "failed", "drift": "passed", "repeated_rows": "passed", "overfitting": "passed",
        "underfitting": "passed", "calibration": "not judged", "group_gap": "passed",
    }  # fmt: skip
    assert found["leak"].value > found["leak"].bound and "copied" in found["leak"].evidence
    assert "| leak | failed |" in (paths.root / "report" / "report.md").read_text()
    assert set(re.findall(r'id="(.*?)"', CHECKS)) == {one.page for one in found.values()}
