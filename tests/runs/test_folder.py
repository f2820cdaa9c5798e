"""A run's folder is its own while it runs, and a resumed run tells what all its parts took."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.telemetry import GpuSample, Sample
from sparkgpu.core.rundir import lock
from sparkgpu.core.rundir.lock import hold
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.runs.finish import cost, taken_by

HOLDER = """
import sys, time; from pathlib import Path
from sparkgpu.core.rundir.paths import RunPaths; from sparkgpu.core.rundir.lock import hold
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


def test_a_new_run_waits_for_a_living_one_and_resumes_a_killed_one(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    paths = RunPaths(root=tmp_path / "run")
    (table := tmp_path / "wine.csv").write_text("a,b\n1,2\n")
    ask = ("run", table, "--target", "b", "--out", paths.root)
    command = [sys.executable, "-c", HOLDER, str(paths.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        code, _, said = call(*ask)
        assert code == 2 and f"another run uses this folder (process {other.pid} of " in said
        assert "). Wait for its end, or choose another folder; `sparkgpu monitor` shows it.\n" in said
        paths.config.write_text("seed = 1\n")
        other.kill()
    code, _, said = call(*ask)
    assert code == 2 and f"it holds a run that was killed (process {other.pid} of " in said
    assert said.endswith(
        f"). `sparkgpu run --resume --out {paths.root}` goes on from here; or choose a new folder.\n"
    )
    code, _, said = call("monitor", paths.root)
    assert (code, said) == (
        5,
        f"sparkgpu: {paths.root}: the run was ended from outside (a kill, or no memory); "
        f"`sparkgpu run --resume --out {paths.root}` goes on with it.\n",
    )


@contextmanager
def elsewhere(paths: RunPaths) -> Iterator[subprocess.Popen[str]]:
    """A run that holds the folder on a machine whose locks are not seen here: its lock is on another file."""
    named = "import socket; socket.gethostname = lambda: 'elsewhere'\n"
    command = [sys.executable, "-c", named + HOLDER, str(paths.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        text = paths.running.read_text()
        paths.running.unlink()
        paths.running.write_text(text)
        try:
            yield other
        finally:
            other.kill()


def test_a_run_on_a_machine_whose_locks_are_not_seen_holds_its_folder_from_its_start(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    paths = RunPaths(root=tmp_path / "run")
    (tmp_path / "wine.csv").write_text("a,b\n1,2\n")
    with elsewhere(paths) as other:
        paths.config.write_text('[data]\nsource = "wine.csv"\ntarget = "b"\n')
        for asked in (["wine.csv", "--target", "b"], ["--resume"]):
            code, _, said = call("run", *asked, "--out", paths.root)
            assert code == 2 and f"(process {other.pid} of " in said and "on elsewhere, since 1970" in said
        assert other.poll() is None
    assert {file.name for file in paths.root.iterdir()} == {"running.json", "run.toml"}


def test_a_run_elsewhere_that_is_silent_loses_its_folder_and_ends_if_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "SILENT_S", 0.5)
    paths = RunPaths(root=tmp_path)
    with elsewhere(paths) as other:
        other.send_signal(signal.SIGSTOP)
        with hold(paths, 0.0):
            other.send_signal(signal.SIGCONT)
            _, said = other.communicate(timeout=20)
            assert json.loads(paths.running.read_text())["process"] == os.getpid()
    assert other.returncode == 5 and "this run gave no sign of life" in said
    assert f"another one uses its folder (process {os.getpid()} of " in said


def test_a_run_that_was_killed_elsewhere_frees_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "SILENT_S", 0.5)
    paths = RunPaths(root=tmp_path)
    with elsewhere(paths) as other:
        other.kill()
        with hold(paths, 0.0):
            pass
    assert list(paths.root.iterdir()) == []


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
    found = taken_by(samples, 899.0, 20.0)
    assert (found.started, found.wall_s, found.peak_rss_bytes) == (100.0, 51.0, 9)
    assert found.energy_wh == pytest.approx(0.3)
    alone = taken_by(samples[4:6], 400.0, 500.0)
    assert (alone.started, alone.wall_s, alone.energy_wh) == (400.0, 500.0, None)


def test_the_price_is_that_of_every_device_for_the_whole_run() -> None:
    assert cost(4, 1800.0, 12.5, 3.5).price == pytest.approx(7.0)
    free = cost(4, 1800.0, None, None)
    assert (free.device_hours, free.energy_wh, free.price) == (2.0, None, None)
