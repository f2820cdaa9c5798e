"""The report of a run that was predicted shows the prediction beside the outcome."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkgpu.present.report import build
from sparkgpu.rundir.advice import AdviceRecord
from sparkgpu.rundir.files import write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import read_results

MakeRun = Callable[..., RunPaths]


@pytest.fixture(autouse=True)
def _only(only_sections: Callable[..., None]) -> None:
    only_sections("machine")


def predicted(wall_s: float, rss_bytes: int) -> AdviceRecord:
    return AdviceRecord(
        source="t.parquet", rows=400, num_features=3, task="binary", place="a terminal or a script",
        device="CPU", lanes=1, strategy="single", wall_s=wall_s, ready_s=6.0, trees_s=9.0, neural_s=10.0,
        peak_rss_bytes=rss_bytes, peak_device_bytes=None, device_hours=0.01, price=None, calibration_s=20.0,
        assumptions=("early stopping leaves the network 30 of 97 epochs",), options=(),
        command="sparkgpu run",
    )  # fmt: skip


def test_prediction_and_outcome_stand_side_by_side(run_directory: MakeRun) -> None:
    paths = run_directory()
    run = read_results(paths).run
    write_json(paths.advice, predicted(run.wall_s / 2, run.peak_rss_bytes))
    page = build(paths).read_text(encoding="utf-8")
    assert "early stopping leaves the network 30 of 97 epochs" in page
    text = (paths.report / "report.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "time to the result" in line)
    assert [cell.strip() for cell in line.split("|")][4] == "2.00"
    line = next(line for line in text.splitlines() if "memory of all processes" in line)
    assert [cell.strip() for cell in line.split("|")][4] == "1.00"


def test_a_run_without_a_prediction_has_no_such_table(run_directory: MakeRun) -> None:
    assert "prediction and outcome" not in build(run_directory()).read_text(encoding="utf-8")


def test_the_file_of_a_prediction_is_in_the_run_directory(tmp_path: Path) -> None:
    assert RunPaths(root=tmp_path).advice == tmp_path / "advice.json"
