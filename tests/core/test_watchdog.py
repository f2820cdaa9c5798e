"""The watchdog tells working processes from hung ones: busy, crowded out, asleep or stopped ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.toml import load
from sparkgpu.core.host.watchdog import LOOK_EVERY_S, Vitals, dump_stacks
from sparkgpu.core.table.source import Source
from sparkgpu.lanes.launch import FAR, patience_s

pytestmark = pytest.mark.process

AUTOGROUP = Path("/proc/self/autogroup")


class Clock:
    """A clock that only the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def running(code: str, *, nice: int = 0, count: int = 1) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that have reported that they are ready."""
    program = f"import os, sys, time\nos.nice({nice})\nprint('ready', flush=True)\n{code}"
    if nice and AUTOGROUP.exists():  # sessions share the cores first, and by nice levels of their own
        program = f"open('{AUTOGROUP}', 'w').write('{nice}')\n{program}"
    found = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(count)
    ]
    try:
        for process in found:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield found
    finally:
        for process in found:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def idle_after_a_look(pid: int, really_s: float = 0.5) -> float:
    """The silence after one check of what a process did in `really_s` seconds, counted as a longer time."""
    clock = Clock()
    vitals = Vitals(pid, clock=clock)
    begin = time.monotonic()
    time.sleep(really_s)
    clock.now = max(LOOK_EVERY_S, time.monotonic() - begin)
    return vitals.look()


SLEEP = "time.sleep(600)"
BUSY = "while True: pass"


def test_a_process_that_sleeps_is_silent() -> None:
    with running(SLEEP) as (process,):
        assert idle_after_a_look(process.pid) >= LOOK_EVERY_S


@pytest.mark.parametrize(
    "code",
    [
        BUSY,
        f"import subprocess; subprocess.run([sys.executable, '-c', {BUSY!r}])",
        "while True:\n open('/dev/zero', 'rb').read(1_000_000); time.sleep(0.2)",
    ],
    ids=["it computes", "its child computes", "it reads"],
)
def test_a_process_that_works_is_not(code: str) -> None:
    with running(code) as (process,):
        time.sleep(0.3)  # until its child runs
        assert idle_after_a_look(process.pid, LOOK_EVERY_S) == 0.0


def test_nor_is_one_that_others_keep_from_computing() -> None:
    cores = len(os.sched_getaffinity(0))
    with running(BUSY, nice=19) as (process,), running(BUSY, count=2 * cores):
        assert idle_after_a_look(process.pid, LOOK_EVERY_S) == 0.0


def test_nor_is_one_that_waits_for_a_disk_for_minutes() -> None:
    """A process that shares its memory with a child waits for it as for a disk, without a signal's reach."""
    clock = Clock()
    with running("import ctypes\nctypes.CDLL(None).vfork()\ntime.sleep(600)") as (process,):
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "D":
            time.sleep(0.01)
        vitals = Vitals(process.pid, clock=clock)
        for seconds, idle_s in [(5 * 60.0, 0.0), (4 * 60.0, 0.0), (2 * 60.0, 2 * LOOK_EVERY_S)]:
            clock.now += seconds
            assert vitals.look() == idle_s


def test_a_stopped_process_is_silent_until_it_goes_on() -> None:
    with running(BUSY) as (process,):
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        assert idle_after_a_look(process.pid, 1.0) >= LOOK_EVERY_S
        process.send_signal(signal.SIGCONT)
        assert idle_after_a_look(process.pid, LOOK_EVERY_S) == 0.0


def test_silence_ends_when_a_process_starts_another(tmp_path: Path) -> None:
    clock, asked, done = Clock(), tmp_path / "asked", tmp_path / "done"
    code = f"""
import subprocess
while not os.path.exists({str(asked)!r}): time.sleep(0.05)
subprocess.Popen(["sleep", "600"])
open({str(done)!r}, "w").close()
{SLEEP}"""
    with running(code) as (process,):
        vitals = Vitals(process.pid, clock=clock)
        clock.now += LOOK_EVERY_S
        assert vitals.look() == LOOK_EVERY_S
        asked.touch()
        while not done.exists():
            time.sleep(0.01)
        clock.now += LOOK_EVERY_S
        assert vitals.look() == 0.0


def test_silence_adds_up_and_a_report_ends_it_and_hours_in_which_nobody_looked_are_none() -> None:
    clock = Clock()
    with running(SLEEP) as (process,):
        vitals = Vitals(process.pid, clock=clock)
        clock.now += LOOK_EVERY_S / 2  # between two looks nothing is measured
        assert vitals.look() == 0.0
        for _ in range(4):
            clock.now += LOOK_EVERY_S
            vitals.look()
        assert vitals.idle_s == 4.5 * LOOK_EVERY_S
        vitals.made_progress()
        assert vitals.look() == 0.0
        clock.now += 8 * 3600
        assert vitals.look() <= 2 * LOOK_EVERY_S


def test_a_worker_writes_the_stacks_of_all_its_threads_when_asked() -> None:
    code = """
import threading
from sparkgpu.core.host.watchdog import dump_stacks_on_signal
dump_stacks_on_signal()
there = threading.Event()
def wait_for_ever():
    there.set()
    time.sleep(600)
def main():
    threading.Thread(target=wait_for_ever, daemon=True).start()
    there.wait()
    print('ready', flush=True)
    time.sleep(600)
main()
"""
    with running(code) as (process,):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)  # a stopped process must answer, too
        dump_stacks(process.pid)
        process.kill()
        stacks = process.stderr.read()
    assert "in wait_for_ever" in stacks
    assert "in main" in stacks


@pytest.mark.parametrize(
    ("options", "branch", "source", "seconds"),
    [
        ({}, "trees", "t.parquet", 60.0),
        ({}, "neural", "t.parquet", 60.0),
        # Its gang's own watcher must act first.
        ({"neural.rank_timeout_s": 100.0}, "neural", "t.parquet", 120.0),
        ({"hang_after_s": 10.0}, "trees", "t.parquet", 10.0),
        ({}, "trees", "s3a://bucket/t.parquet", FAR * 60.0),
        ({}, "trees", "table:sales", FAR * 60.0),
        ({"hang_after_s": 0.0}, "trees", "t.parquet", float("inf")),
    ],
)
def test_how_long_a_worker_may_be_silent(
    options: dict[str, float], branch: str, source: str, seconds: float
) -> None:
    config: RunConfig = load(options=options)
    stored = None if source.startswith("table:") else "parquet"
    found = Source(name="t", location=source, format=stored)
    assert patience_s(config, branch, found) == seconds  # type: ignore[arg-type]


def test_a_run_that_hangs_at_its_end_says_where_and_ends(tmp_path: Path) -> None:
    log = tmp_path / "hang.log"
    code = f"""
import time
from pathlib import Path
from sparkgpu.core.host.watchdog import watch_self
def score(): time.sleep(600)
with watch_self(5.0, Path({str(log)!r})):
    score()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 5
    assert ended.stderr == f"sparkgpu: the run hung in its last steps; its stacks are in {log}.\n"
    assert "in score" in log.read_text(encoding="utf-8")
