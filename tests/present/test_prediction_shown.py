"""The report of a run that was predicted shows the prediction beside the outcome."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkgpu.core.rundir.advice import AdviceRecord
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.report import build

MakeRun = Callable[..., RunPaths]


@pytest.fixture(autouse=True)
def _only(only_sections: Callable[..., None]) -> None:
    only_sections("machine")


def predicted(wall_s: float, rss_bytes: int) -> AdviceRecord:
    return AdviceRecord(
        source="t.parquet", rows=400, num_features=3, task="binary", device="CPU", lanes=1, strategy="single",
        wall_s=wall_s, ready_s=6.0, trees_s=9.0, neural_s=10.0, peak_rss_bytes=rss_bytes,
        peak_device_bytes=None, device_hours=0.01, price=None, options=(),
        assumptions=("early stopping leaves the network 30 of 97 epochs",),
    )  # fmt: skip


def test_prediction_and_outcome_stand_side_by_side(run_directory: MakeRun) -> None:
    paths = run_directory()
    run = read_results(paths).run
    assert "prediction and outcome" not in build(paths).read_text(encoding="utf-8")  # without one
    write_json(paths.advice, predicted(run.wall_s / 2, run.peak_rss_bytes))
    page = build(paths).read_text(encoding="utf-8")
    assert "prediction and outcome" in page
    assert "early stopping leaves the network 30 of 97 epochs" in page
    text = (paths.report / "report.md").read_text(encoding="utf-8")
    for what, ratio in (("time to the result", "2.00"), ("memory of all processes", "1.00")):
        line = next(line for line in text.splitlines() if what in line)
        assert [cell.strip() for cell in line.split("|")][4] == ratio
