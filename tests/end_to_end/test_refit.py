"""`sparkgpu refit`: the same settings on all rows, beside the figures of the run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running import COMMAND, REPOSITORY, SMALL, Running, finished, write_table

import sparkgpu
from sparkgpu.core.rundir.paths import RunPaths

pytestmark = pytest.mark.process

FEW = (*SMALL, "--set", "trees.ntrees=300", "--set", "trees.sample_rate=1", "--cpu-lanes", "1")
LIGHT = ("--set", "trees.engine=lightgbm")


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """A real table of 569 rows, two classes, in an order that says nothing."""
    import sklearn.datasets

    frame = sklearn.datasets.load_breast_cancer(as_frame=True).frame
    names = {name: name.replace(" ", "_") for name in frame.columns}
    return frame.rename(columns=names).sample(frac=1, random_state=0, ignore_index=True)


@pytest.fixture(scope="module")
def run(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Running:
    folder = tmp_path_factory.mktemp("refit")
    rows[:500].to_parquet(folder / "rows.parquet")
    return finished(
        [*COMMAND, "run", folder / "rows.parquet", "--target", "target", *FEW, *LIGHT], folder / "run", folder
    )


def said(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def rows_of(model: Path) -> int:
    """The rows that the first tree of a LightGBM model was grown on."""
    line = next(line for line in model.read_text().splitlines() if line.startswith("internal_count="))
    return int(line.split("=")[1].split()[0])


def metrics_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


def test_the_models_learn_from_all_rows_and_new_ones_as_long_as_the_run_found_best(
    run: Running, rows: pd.DataFrame, tmp_path: Path
) -> None:
    new = rows[500:].assign(target=rows["target"][500:].astype(object).astype(str))
    new.iloc[3, new.columns.get_loc("target")] = "7"  # a class that the run never saw
    new.to_csv(tmp_path / "new.csv", index=False)
    done = said("refit", run.paths.root, "--more", tmp_path / "new.csv", "--out", "again", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 row of " in done.stderr and "without a 'target' that the run knows" in done.stderr
    before, after = metrics_of(run.paths.root), metrics_of(tmp_path / "again")
    assert after["refit"]["rows"] == 568 and after["refit"]["added_rows"] == 68
    for key in ("models", "trials"):
        assert after[key] == before[key]
    assert "trained once more on all 568 rows (68 of them new)" in after["comparison"]["caveats"][-1]
    assert "trained once more on all 568 rows" in (tmp_path / "again" / "report" / "report.md").read_text()
    (trees,) = (trial for trial in before["trials"] if trial["model"] == "trees")
    old, model = (folder / "trials/trees-s7/model.txt" for folder in (run.paths.root, tmp_path / "again"))
    assert (rows_of(old), rows_of(model)) == (before["data"]["splits"]["train"], 568)
    assert model.read_text().count("Tree=") == trees["best_iteration"] < 300
    for name in ("trees", "neural", "blend"):
        one, other = (sparkgpu.load(folder, name) for folder in (run.paths.root, tmp_path / "again"))
        assert not np.allclose(one.predict_proba(rows), other.predict_proba(rows), atol=1e-6)
        assert any("once more" in note for note in other.notes)
    exported = said("export", "again", "--model", "trees", "--format", "lightgbm", folder=tmp_path)
    assert exported.returncode == 0, exported.stderr  # it is compared with the new model
    for words in ("refit again", "run --resume --out again"):
        refused = said(*words.split(), folder=tmp_path)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert f"Use the run that it is of, {run.paths.root}" in refused.stderr


@pytest.mark.slow
def test_python_refits_with_a_frame_of_new_rows(run: Running, rows: pd.DataFrame, tmp_path: Path) -> None:
    found = sparkgpu.refit(run.paths.root, more=rows[500:], out=tmp_path / "again", quiet=True)
    assert found.results.refit is not None and found.results.refit.rows == 569
    assert found.load("trees").predict(rows).shape == (569,)


@pytest.mark.parametrize(
    ("drop", "words"),
    [("target", "lacks 'target', which models learn from"), ("mean_radius", "needs column 'mean_radius'")],
)
def test_new_rows_that_cannot_be_learned_from_leave_no_folder(
    run: Running, rows: pd.DataFrame, tmp_path: Path, drop: str, words: str
) -> None:
    rows.drop(columns=drop).to_parquet(tmp_path / "new.parquet")
    done = said("refit", run.paths.root, "--more", "new.parquet", "--out", "again", folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1) and words in done.stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_the_commands_and_lines_of_the_page_work(
    run: Running, rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    section = (REPOSITORY / "docs" / "refit.md").read_text(encoding="utf-8")
    (commands,), (lines,) = (
        re.findall(rf"```{kind}\n(.*?)```", section, re.S) for kind in ("bash", "python")
    )
    shutil.copytree(run.paths.root, "reports/adult")
    rows[500:].to_parquet("newer.parquet")
    rows.to_parquet("new.parquet")
    for line in commands.splitlines():
        done = said(*shlex.split(line)[1:], folder=tmp_path)
        assert done.returncode == 0, done.stderr
    seen = {"sparkgpu": sparkgpu, "newer": rows[500:]}
    exec(lines, seen)
    found = pd.read_parquet("predictions.parquet")["prediction"]
    assert (seen["deployed"].predict(rows) == found).all()


@pytest.mark.slow
@pytest.mark.spark
def test_h2o_folds_a_search_and_weights_are_refitted_with_what_each_trial_found(tmp_path: Path) -> None:
    frame = pd.read_parquet(write_table("wine", tmp_path)).assign(weight=lambda rows: 1.0 + rows.index % 3)
    frame.to_parquet(tmp_path / "wine.parquet")
    run = finished(
        [*COMMAND, "run", tmp_path / "wine.parquet", "--target", "target", *SMALL, "--cpu-lanes", "1",
         "--set", "split.folds=2", "--search", "2", "--set", "data.weight=weight"],
        tmp_path / "run", tmp_path,
    )  # fmt: skip
    frame[:10].to_parquet(tmp_path / "more.parquet")
    done = said("refit", run.paths.root, "--more", "more.parquet", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    paths = RunPaths(root=tmp_path / "run-refit")
    assert metrics_of(paths.root)["refit"]["rows"] == 188
    for model in ("trees", "trees-tuned", "neural", "neural-tuned"):
        frames = [
            sparkgpu.load(folder, model).predict_proba(frame) for folder in (run.paths.root, paths.root)
        ]
        assert not np.allclose(*frames, atol=1e-6)
    folds = [sparkgpu.load(paths.root, f"neural-s7-f{fold}").predict_proba(frame) for fold in (0, 1)]
    assert not np.allclose(*folds, atol=1e-6)
    exported = said("export", paths.root, "--model", "trees-s7-f0", "--format", "mojo", folder=tmp_path)
    assert exported.returncode == 0, exported.stderr
