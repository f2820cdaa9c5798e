"""The run over time: phases by branch, samples of any version of telemetry.csv, and a picture of both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkgpu.core.host.telemetry import GpuSample, Sample, append_sample
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.figure import plot_style
from sparkgpu.present.pictures.machine import activity
from sparkgpu.present.timeline import MOST_SAMPLES, Timeline, timeline


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    found = RunPaths(root=tmp_path / "run")
    lines = (
        '{"at":1001.0,"kind":"phase","text":"loading"}',
        '{"at":1004.0,"kind":"phase","text":"training","trial":"neural-s7"}',
        '{"at":1006.0,"kind":"progress","trial":"neural-s7","done":0.5}',
        '{"at":1009.0,"kind":"trial_done","trial":"neural-s7","done":1.0}',
    )
    write_text(found.lane(0).events("neural"), "\n".join((*lines, '{"at":1010.0,"ki')))
    return found


def sampled(paths: RunPaths, seconds: int, *, start: float = 1000.0) -> None:
    for second in range(seconds):
        gpus = tuple(
            GpuSample(gpu=index, gpu_util=50.0 + index, gpu_mem_bytes=2**30, gpu_power_w=100.0)
            for index in range(2)
        )
        append_sample(
            paths.telemetry,
            Sample(
                at=start + second, elapsed_s=float(second), rss_bytes=2**31, cpu_percent=80.0,
                disk_read_bytes_per_s=5e6, net_rx_bytes_per_s=0.0, gpus=gpus,
            ),
        )  # fmt: skip


def read(paths: RunPaths) -> Timeline:
    found = timeline(paths)
    assert found is not None
    return found


def test_a_phase_lasts_until_the_next_sign_of_its_branch_in_the_last_part_of_the_run(paths: RunPaths) -> None:
    sampled(paths, 5, start=100.0)  # before it was resumed
    sampled(paths, 12)
    spans = [(span.phase, span.begin_s, span.end_s) for span in read(paths).lanes["lane 0 neural"]]
    assert spans == [("loading", 1.0, 4.0), ("training", 4.0, 9.0)]
    assert read(paths).end_s == 11.0


def test_each_gpu_has_a_line_of_its_own_which_is_thinned_by_means(paths: RunPaths) -> None:
    sampled(paths, 1000)
    found = read(paths)
    busy, memory, power = found.panels.values()
    assert {name: values.tolist() for name, values in busy.items()} == {
        name: [percent] * MOST_SAMPLES for name, percent in [("all cores", 80), ("GPU 0", 50), ("GPU 1", 51)]
    }
    assert list(power) == ["GPU 0", "GPU 1"] and list(memory) == ["the run", "GPU 0", "GPU 1"]
    assert len(found.at_s) == MOST_SAMPLES


def test_the_file_of_an_earlier_version_shows_what_it_has(paths: RunPaths) -> None:
    heading = "at,elapsed_s,rss_bytes,cpu_s,load1,gpu,gpu_util,gpu_mem_bytes,gpu_power_w"
    write_text(paths.telemetry, f"{heading}\n1000.0,0.0,1000,1.0,0.5,,,,\n1011.0,11.0,1000,2.0,0.5,,,,\n")
    found = read(paths)
    (lines,) = found.panels.values()
    assert lines["the run"].tolist() == [1000 / 2**30] * 2


def test_the_picture_has_a_panel_for_each_unit(paths: RunPaths) -> None:
    sampled(paths, 12)
    with plot_style():
        shown = activity(paths)
    assert shown is not None
    assert shown.svg.count("<svg") == 4
    for text in ("training", "GPU 1", "watts"):
        assert text in shown.svg


@pytest.mark.parametrize(
    ("end_s", "mark"),
    [(200, "0.5 min"), (400, "3 min"), (5_000, "15 min"), (20_000, "3 h"), (10**7, "1,080 h")],
)
def test_the_axis_of_time_has_round_marks(paths: RunPaths, end_s: int, mark: str) -> None:
    for second in (0, end_s):
        append_sample(paths.telemetry, Sample(at=1000.0 + second, elapsed_s=second, cpu_percent=80.0))
    with plot_style():
        shown = activity(paths)
    assert shown is not None
    found = set(re.findall(r">([\d.,]+ (?:s|min|h))<", shown.svg))
    assert mark in found and len(found) <= 9, found


def test_without_samples_the_phases_are_drawn_alone(paths: RunPaths) -> None:
    with plot_style():
        shown = activity(paths)
    assert shown is not None and shown.svg.count("<svg") == 1
    with plot_style():
        assert activity(RunPaths(root=paths.root / "nothing")) is None
