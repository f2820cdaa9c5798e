"""A run's folder is its own while it runs, and a resumed run tells what all its parts took."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.telemetry import GpuSample, Sample, append_sample
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.runs.finish import cost, taken_by
from sparkgpu.runs.lock import hold

HOLDER = """
import sys, time; from pathlib import Path
from sparkgpu.core.rundir.paths import RunPaths; from sparkgpu.runs.lock import hold
with hold(RunPaths(root=Path(sys.argv[1])), 0.0):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_belongs_to_one_run_until_its_end_or_its_death(tmp_path: Path) -> None:
    paths = RunPaths(root=tmp_path / "new" / "run")
    command = [sys.executable, "-c", HOLDER, str(paths.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError) as refused, hold(paths, 0.0):
            pass
        other.send_signal(signal.SIGKILL)
    assert str(refused.value).startswith(
        f"--out {paths.root}: another run uses this folder (process {other.pid} of "
    )
    assert f" on {socket.gethostname()}, since 1970-01-01 00:00:00 UTC). " in str(refused.value)
    with hold(paths, 0.0):
        assert json.loads(paths.running.read_text())["process"] == os.getpid()
    assert list(paths.root.iterdir()) == []


@pytest.mark.parametrize(("age_s", "is_free"), [(1, False), (60, True)])
def test_a_run_on_a_machine_whose_locks_are_not_seen_lives_as_long_as_its_samples_come(
    tmp_path: Path, age_s: int, is_free: bool
) -> None:
    paths = RunPaths(root=tmp_path)
    owner = {"process": 7, "user": "ada", "host": "elsewhere", "since": "today"}
    paths.running.write_text(json.dumps(owner))
    append_sample(paths.telemetry, Sample(at=0.0, elapsed_s=1.0))
    then = paths.telemetry.stat().st_mtime - age_s
    os.utime(paths.telemetry, (then, then))
    if is_free:
        with hold(paths, 0.0):
            return
    with pytest.raises(ConfigError, match="process 7 of ada on elsewhere, since today"), hold(paths, 0.0):
        pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match=r"/file/run: cannot be written \(Not a directory\)\."),
        hold(RunPaths(root=tmp_path / "file" / "run"), 0.0),
    ):
        pass


def test_what_the_parts_of_a_run_took_adds_up() -> None:
    def watts(power: float | None) -> tuple[GpuSample, ...]:
        return (GpuSample(gpu=3, gpu_power_w=power), GpuSample(gpu=4))

    samples = [
        Sample(at=100.0, elapsed_s=0.0, rss_bytes=5.0, gpus=watts(90.0)),
        Sample(at=110.0, elapsed_s=10.0, rss_bytes=9.0, gpus=watts(54.0)),
        Sample(at=120.0, elapsed_s=20.0, rss_bytes=9.0, gpus=watts(None)),  # a gap adds nothing
        Sample(at=130.0, elapsed_s=30.0, rss_bytes=9.0, gpus=watts(99.0)),
        Sample(at=500.0, elapsed_s=1.0, rss_bytes=7.0),
        Sample(at=899.0, elapsed_s=1.5, rss_bytes=7.0),
        Sample(at=902.0, elapsed_s=3.5, gpus=watts(36.0)),
        Sample(at=912.0, elapsed_s=13.5, rss_bytes=8.0, gpus=watts(36.0)),
    ]
    found = taken_by(samples, 899.0, 919.0)
    assert (found.started, found.wall_s, found.peak_rss_bytes) == (100.0, 51.0, 9)
    assert found.energy_wh == pytest.approx(0.3)
    alone = taken_by(samples[4:6], 400.0, 900.0)
    assert (alone.started, alone.wall_s, alone.energy_wh) == (400.0, 500.0, None)


def test_the_price_is_that_of_every_device_for_the_whole_run() -> None:
    assert cost(4, 1800.0, 12.5, 3.5).price == pytest.approx(7.0)
    free = cost(4, 1800.0, None, None)
    assert (free.device_hours, free.energy_wh, free.price) == (2.0, None, None)
