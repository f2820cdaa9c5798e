"""Several runs side by side on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.terminal.tables import leaderboard


def test_the_models_of_all_runs_stand_by_their_metric(
    plain_run: RunPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    found = read_json(plain_run.metrics)
    trees = next(model for model in found["models"] if model["name"] == "trees")
    trees["metrics"]["test"]["roc_auc"] = 0.99
    write_json(other / "metrics.json", found)
    leaderboard([plain_run.root, other])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:3] for line in lines[2:8]] == [
        ["other", "trees", "0.9900"], ["run", "blend", "0.7123"], ["other", "blend", "0.7123"],
        ["run", "trees", "0.7000"], ["run", "neural", "0.6000"], ["other", "neural", "0.6000"],
    ]  # fmt: skip
    assert lines[3][-2:] == ["–", "–"]  # a blend trains nothing


def test_runs_of_other_rows_get_a_note_and_other_targets_are_refused(
    plain_run: RunPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_json(plain_run.metrics)
    write_json(tmp_path / "same" / "metrics.json", found)
    leaderboard([plain_run.root, tmp_path / "same"])
    assert "note:" not in capsys.readouterr().out
    found["data"]["fingerprint"] = "other"
    write_json(tmp_path / "rows" / "metrics.json", found)
    leaderboard([plain_run.root, tmp_path / "rows"])
    assert "do not share their test rows" in " ".join(capsys.readouterr().out.split())
    found["data"]["target"] = "else"
    write_json(tmp_path / "target" / "metrics.json", found)
    with pytest.raises(ConfigError, match="predict different targets"):
        leaderboard([plain_run.root, tmp_path / "target"])
    with pytest.raises(ConfigError, match="it holds no metrics"):
        leaderboard([tmp_path])
