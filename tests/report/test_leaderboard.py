"""Several runs side by side on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkgpu.errors import ConfigError
from sparkgpu.rundir.files import read_json, write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import read_results
from sparkgpu.terminal.leaderboard import read_lines, show

MakeRun = Callable[..., RunPaths]


def test_the_models_of_all_runs_stand_by_their_metric(plain_run: RunPaths, tmp_path: Path) -> None:
    other = tmp_path / "other"
    found = read_json(plain_run.metrics)
    for model in found["models"]:
        if model["name"] == "trees":
            for metrics in (model["metrics"], model.get("averaged")):
                if metrics:
                    metrics["test"]["roc_auc"] = 0.99
    write_json(other / "metrics.json", found)
    metric, lines = read_lines([plain_run.root, other])
    assert metric == "roc_auc" and len(lines) == 2 * len(read_results(plain_run).models)
    assert (lines[0].run, lines[0].model) == (str(other), "trees")
    values = [line.metrics["roc_auc"] or 0.0 for line in lines]
    assert values == sorted(values, reverse=True)
    assert all(line.fit_s is None for line in lines if line.model == "blend")


def test_runs_of_other_rows_get_a_note_and_other_targets_are_refused(
    plain_run: RunPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_json(plain_run.metrics)
    write_json(tmp_path / "same" / "metrics.json", found)
    show([plain_run.root, tmp_path / "same"])
    assert "note:" not in capsys.readouterr().out
    found["data"]["fingerprint"] = "other"
    write_json(tmp_path / "rows" / "metrics.json", found)
    show([plain_run.root, tmp_path / "rows"])
    assert "do not share their test rows" in " ".join(capsys.readouterr().out.split())
    found["data"]["target"] = "else"
    write_json(tmp_path / "target" / "metrics.json", found)
    with pytest.raises(ConfigError, match="predict different targets"):
        read_lines([plain_run.root, tmp_path / "target"])
    with pytest.raises(ConfigError, match="it holds no metrics"):
        read_lines([tmp_path])
