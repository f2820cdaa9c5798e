"""The monitor counts what a run's processes use, survives vanishing processes, and sums up energy."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from sparkgpu.core.host.devices import find_machine
from sparkgpu.core.host.meters import ProcessTree
from sparkgpu.core.host.monitor import Monitor
from sparkgpu.core.host.telemetry import COLUMNS

MIB = 2**20

# A process whose child holds the memory, as a lane's worker does.
HOLDER = """
import subprocess, sys, time
child = "held = bytearray(%d); held[::4096] = bytes(len(held[::4096])); print('ready', flush=True); input()"
print(subprocess.Popen([sys.executable, "-c", child % int(sys.argv[1])]).pid, flush=True)
time.sleep(60)
"""


@contextmanager
def holder(mebibytes: int) -> Iterator[tuple[int, int]]:
    """Process ids of a parent and of its child, which holds this much memory."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(mebibytes * MIB)], stdout=subprocess.PIPE, text=True,
        stdin=subprocess.PIPE,
    ) as parent:  # fmt: skip
        assert parent.stdout
        lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        child = int((lines - {"ready"}).pop())
        try:
            yield parent.pid, child
        finally:
            for pid in (child, parent.pid):
                if psutil.pid_exists(pid):
                    psutil.Process(pid).kill()


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="ascii", newline="") as file:
        return list(csv.DictReader(file))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("named", [1, 2])
def test_memory_is_summed_over_processes_and_their_descendants(tmp_path: Path, named: int) -> None:
    path = tmp_path / "telemetry.csv"
    with holder(64) as pids:
        roots = {pid: str(pid) for pid in pids[:named]}  # the child is found, and counts once if it is named
        with Monitor(path, lambda: roots, 0.05, gpus=()) as monitor:
            wait_for(lambda: monitor.newest and monitor.newest.rss_bytes > 64 * MIB)
            single = sum(psutil.Process(pid).memory_info().rss for pid in pids)
    peak = max(int(row["rss_bytes"]) for row in rows_of(path))
    assert single - 4 * MIB < peak < single + 4 * MIB


def test_a_row_has_the_time_the_load_and_blanks_for_absent_gpus(tmp_path: Path) -> None:
    path = tmp_path / "new" / "telemetry.csv"
    before = time.time()
    with Monitor(path, lambda: {os.getpid(): "run"}, 0.02, gpus=()):
        time.sleep(0.1)
    assert path.read_text(encoding="ascii").splitlines()[0] == ",".join(COLUMNS)
    rows = rows_of(path)
    assert len(rows) >= 2
    assert before <= float(rows[0]["at"]) <= time.time()
    elapsed = [float(row["elapsed_s"]) for row in rows]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] >= 0.1
    assert int(rows[0]["rss_bytes"]) > 10 * MIB
    assert float(rows[0]["load1"]) >= 0
    assert {row[name] for row in rows for name in COLUMNS if name.startswith("gpu")} == {""}


def test_a_run_shorter_than_the_interval_is_sampled_at_its_start_and_end(tmp_path: Path) -> None:
    # If it waited for its interval, pytest's timeout would end this.
    with Monitor(tmp_path / "t.csv", lambda: {os.getpid(): "run"}, 3600.0, gpus=()):
        wait_for(lambda: (tmp_path / "t.csv").exists() and rows_of(tmp_path / "t.csv"))
    assert len(rows_of(tmp_path / "t.csv")) == 2


def test_a_resumed_run_appends_under_the_same_heading(tmp_path: Path) -> None:
    for _ in range(2):
        with Monitor(tmp_path / "t.csv", lambda: {os.getpid(): "run"}, gpus=()):
            pass
    lines = (tmp_path / "t.csv").read_text(encoding="ascii").splitlines()
    assert lines.count(",".join(COLUMNS)) == 1
    assert len(lines) >= 3


def test_cpu_time_of_ended_processes_stays_counted() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as child:
        tree = ProcessTree(lambda: {child.pid: "busy"})
        assert child.stdout
        child.stdout.readline()
        use = tree.measure()
        child.kill()
    assert use.rss_bytes > MIB
    assert use.cpu_s >= 0.25
    after = tree.measure()
    assert (after.rss_bytes, after.cpu_s) == (0, use.cpu_s)


def test_processes_that_vanish_and_lists_that_break_do_not_end_the_sampling(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    calls = 0

    def pids() -> dict[int, str]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("dictionary changed size during iteration")
        return {os.getpid(): "run", gone.pid: "gone"}

    with Monitor(tmp_path / "t.csv", pids, 0.02, gpus=()):
        wait_for(lambda: calls >= 4)
    assert int(rows_of(tmp_path / "t.csv")[-1]["rss_bytes"]) > 10 * MIB


def test_a_file_that_cannot_be_written_costs_the_samples_alone(tmp_path: Path) -> None:
    (tmp_path / "telemetry.csv").mkdir()
    with Monitor(tmp_path / "telemetry.csv", lambda: {os.getpid(): "run"}, 0.02, gpus=()) as monitor:
        wait_for(lambda: monitor.newest is not None)


@pytest.mark.gpu
@pytest.mark.skipif(not find_machine().gpus, reason="no GPU here")
def test_a_gpu_tells_its_memory_and_power(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    gpus = [gpu.uuid for gpu in find_machine().gpus]
    with Monitor(path, lambda: {os.getpid(): "run"}, 0.1, gpus=gpus):
        time.sleep(0.5)
    last = rows_of(path)[-1]
    assert int(last["gpu_mem_bytes"]) > 0
    assert 0 <= int(last["gpu_util"]) <= 100
    assert float(last["gpu_power_w"]) > 0
