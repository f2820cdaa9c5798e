"""telemetry.csv holds what was sampled, reads back whole, and survives kills."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sparkgpu.core.host.monitor import Monitor
from sparkgpu.core.host.telemetry import (
    GpuSample,
    Sample,
    TelemetryReader,
    append_sample,
    read_telemetry,
)


def sample(at: float, *gpus: GpuSample) -> Sample:
    return Sample(at=at, elapsed_s=at - 100.0, rss_bytes=2**30, cpu_s=1.5, cpu_percent=50.5, gpus=gpus)


def test_a_sample_reads_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "telemetry.csv"
    first = GpuSample(
        gpu=0, gpu_util=97, gpu_mem_bytes=3, gpu_power_w=250.5, gpu_uuid="GPU-a", gpu_pcie_rx_bytes_per_s=7,
        gpu_processes=("0/trees:11", "0/neural:12"), gpu_other_processes=1,
    )  # fmt: skip
    written = [sample(100.0, first, GpuSample(gpu=1)), sample(101.0), sample(102.0, GpuSample(gpu=0))]
    for one in written:
        append_sample(path, one)
    assert read_telemetry(path) == written


def test_a_resumed_run_does_not_go_on_in_the_line_that_a_kill_cut(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    append_sample(path, sample(100.0))
    append_sample(path, sample(101.0))
    path.write_text(path.read_text()[:-40])
    assert [one.at for one in read_telemetry(path)] == [100.0]  # a cut line may still grow
    with Monitor(path, dict, gpus=()):
        pass
    append_sample(path, sample(102.0))
    assert [one.at for one in read_telemetry(path)][-1] == 102.0
    assert path.read_text().count("102.000") == 1 and "\n102.000" in path.read_text()


def test_a_file_of_another_version_is_continued_in_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    path.write_text("at,elapsed_s,cpu_percent,gone,rss_bytes\n50.000,0.000,10.0,1,7\n")
    append_sample(path, sample(100.0, GpuSample(gpu=0)))
    assert path.read_text().splitlines()[-1] == f"100.000,0.000,50.5,,{2**30}"
    assert [(one.rss_bytes, one.cpu_percent) for one in read_telemetry(path)] == [(7, 10.0), (2**30, 50.5)]


def test_a_reader_follows_a_growing_file_and_one_that_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    reader = TelemetryReader(path)
    assert reader.new() == []
    append_sample(path, sample(100.0))
    append_sample(path, sample(101.0))
    whole = path.read_text()
    path.write_text(whole[:-10])
    assert reader.new() == [sample(100.0)]
    path.write_text(whole)
    assert reader.new() == [sample(101.0)] and reader.new() == []
    path.unlink()
    append_sample(path, sample(200.0))
    assert reader.new() == [sample(200.0)]


def test_the_machine_and_the_traffic_of_the_run_are_sampled(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    with Monitor(path, lambda: {os.getpid(): "run"}, 0.05, gpus=()):
        deadline = time.monotonic() + 30
        while not any((one.disk_write_bytes_per_s or 0) > 2**20 for one in read_telemetry(path)[4:]):
            with (tmp_path / "written").open("wb") as file:
                file.write(bytes(2**20))
                file.flush()
                os.fsync(file.fileno())
            assert time.monotonic() < deadline
    found = read_telemetry(path)
    assert found[0].cpu_percent is None and found[0].net_rx_bytes_per_s is None  # there is nothing before
    last = found[-1]
    assert last.cpu_percent is not None and 0 <= last.cpu_percent <= 100
    assert last.mem_used_bytes is not None and last.mem_used_bytes > 2**26
    assert last.mem_available_bytes is not None and last.mem_available_bytes > 0
    assert last.net_rx_bytes_per_s is not None and last.net_tx_bytes_per_s is not None


@pytest.mark.parametrize("junk", ["", "not,a,heading\n1,2,3\n", "at,elapsed_s\nx,y\n"])
def test_what_is_no_telemetry_gives_no_samples(tmp_path: Path, junk: str) -> None:
    path = tmp_path / "telemetry.csv"
    path.write_text(junk)
    assert read_telemetry(path) == []
