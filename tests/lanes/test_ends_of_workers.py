"""How a run takes the ends of its workers: their trials are done, failed with a reason, or tried once more.

The workers are processes that the run itself starts, but each plays a part: a few lines of Python.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparkgpu.core.config.registry.engines import Branch
from sparkgpu.core.config.toml import load
from sparkgpu.core.errors import DataError, DeviceError, ExecutorLostError, TrialError
from sparkgpu.core.host import watchdog
from sparkgpu.core.host.devices import Machine, choose_devices
from sparkgpu.core.plan.make_plan import GIB, make_plan
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.lanes import launch, worker_supervisor
from sparkgpu.lanes.worker_supervisor import Outcome, supervised_workers

TREES, NETWORK = "trees-s7", "neural-s7"
TREES_LOG = "lanes/0/lane.log"
PLAYER = """#!{python} -SE
import json, os, pathlib, signal, subprocess, sys, time
words = dict(zip(sys.argv[3::2], sys.argv[4::2]))
run, branch = pathlib.Path(words["--run"]), words["--branch"]
number = int(words["--lane"])
lane = run / "lanes" / str(number)
trial = run / "trials" / (branch + "-s" + str(7 + number))
trial.mkdir(parents=True, exist_ok=True)
with (lane / (branch + ".starts")).open("a") as file:
    file.write(str(os.getpid()) + "\\n")
first = len((lane / (branch + ".starts")).read_text().split()) == 1
def say(kind, **more):
    with (lane / (branch + ".events.jsonl")).open("a") as file:
        file.write(json.dumps(dict(at=time.time(), kind=kind, **more)) + "\\n")
def finish(name=trial.name):
    (run / "trials" / name).mkdir(exist_ok=True)
    (run / "trials" / name / "DONE").touch()
    say("trial_done", trial=name)
def write_table():
    (run / "table").mkdir(exist_ok=True)
    (run / "table" / "schema.json").touch()
def refuse(kind):
    (lane / (branch + ".error.json")).write_text(json.dumps(dict(kind=kind, message="the reason")))
    sys.exit(1)
def die(number=signal.SIGKILL):
    os.kill(os.getpid(), number)
def wait(seconds=600):
    time.sleep(seconds)
exec(os.environ["PLAYS_" + branch.upper()])
"""
Play = Callable[..., Outcome]


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(root=tmp_path / "run")


@pytest.fixture
def play(tmp_path: Path, paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Follows workers that play these parts; the table exists before, unless the trees' part makes it."""
    player = tmp_path / "player"
    player.write_text(PLAYER.format(python=sys.executable))
    player.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(player))
    monkeypatch.setattr(watchdog, "LOOK_EVERY_S", 0.3)
    monkeypatch.setattr(worker_supervisor, "_CLOSING_S", 0.5)
    machine = Machine(cores=2, memory_bytes=8 * GIB, gpus=())

    def played(
        trees: str, network: str = "finish()", *, has_table: bool = True, lanes: int = 1,
        closing: list[str] | None = None, **options: object,
    ) -> Outcome:  # fmt: skip
        devices = choose_devices(machine, gpus=None, cpu_lanes=lanes, environ={})
        config = load(options={"hang_after_s": 0.9, **options})
        plan = make_plan(config, machine, devices, (21000, 22000)[:lanes])
        paths.root.mkdir()
        paths.plan.touch()  # tells that nobody removed the folder
        if has_table:
            paths.table.mkdir()
            paths.schema.touch()
        environ = {**os.environ, "PLAYS_TREES": trees, "PLAYS_NEURAL": network}
        workers = supervised_workers(paths, plan, config, scratch=tmp_path, source=None, environ=environ)
        with workers as followed:
            outcome = followed.follow(lambda *event: None, lambda: None, itertools.repeat(None))
            if closing is not None:
                closing += followed.processes().values()
            return outcome

    return played


def starts(paths: RunPaths, branch: str = "trees", lane: int = 0) -> list[int]:
    """The process ids of a branch, one for each start."""
    file = paths.lane(lane).root / f"{branch}.starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_trials_that_are_done_need_no_reason(play: Play, paths: RunPaths) -> None:
    assert play("finish()") == Outcome(failed={}, notes={})
    assert not list(paths.root.glob("lanes/0/*error.json"))


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("die()", f"lane 0: the trees worker was killed by signal 9 (out of memory?); see RUN/{TREES_LOG}."),
        (
            "die(signal.SIGTERM)",
            f"lane 0: the trees worker was killed by signal 15; see RUN/{TREES_LOG}.",
        ),
        (
            "sys.exit(3)",
            f"lane 0: the trees worker ended with status 3 without a reason; see RUN/{TREES_LOG}.",
        ),
        ("refuse('trial')", "the reason"),
        ("say('trial_failed', trial=trial.name, text='its own'); wait()", "its own"),
    ],
)
def test_a_trial_whose_worker_ends_early_fails_with_the_reason_and_the_other_goes_on(
    part: str, reason: str, play: Play, paths: RunPaths
) -> None:
    ended = paths.lane(0).ended("trees")
    network = f"while not os.path.exists({str(ended)!r}): wait(.01)\nfinish()"
    outcome = play(part, "finish()" if "its own" in reason else network)
    assert outcome == Outcome(failed={TREES: reason.replace("RUN", str(paths.root))}, notes={})
    assert paths.trial(NETWORK).done.exists() and len(starts(paths)) == 1
    if "its own" not in reason:
        found = json.loads((paths.lane(0).root / "error.json").read_text())
        assert (found["branch"], found["message"]) == ("trees", outcome.failed[TREES])


def test_a_trial_whose_worker_dies_after_its_last_file_is_done(play: Play, paths: RunPaths) -> None:
    assert play("(trial / 'DONE').touch(); die()", "wait(1); finish()") == Outcome(failed={}, notes={})
    assert not list(paths.root.glob("lanes/0/*error.json"))


@pytest.mark.parametrize("end", ["die()", "die(signal.SIGSEGV) if first else finish()"])
def test_what_a_dead_worker_had_begun_to_write_is_removed(end: str, play: Play, paths: RunPaths) -> None:
    play(f"if first: (trial / '.predictions.parquet.77').touch()\n{end}", "wait(1); finish()")
    assert [file for file in paths.trial(TREES).root.iterdir() if file.name != "DONE"] == []


def test_what_a_dead_worker_started_ends_while_the_other_works(play: Play, paths: RunPaths) -> None:
    child = paths.root / "child"
    trees = f"pathlib.Path({str(child)!r}).write_text(str(subprocess.Popen(['sleep', '600']).pid)); die()"
    network = f"""
while not (lane / "trees.ended").exists(): wait(.01)
state = pathlib.Path("/proc/" + pathlib.Path({str(child)!r}).read_text() + "/stat")
for _ in range(300):
    if not state.exists() or " Z " in state.read_text():
        (trial / "is gone").touch()
        break
    wait(.01)
finish()
"""
    play(trees, network)
    assert (paths.trial(NETWORK).root / "is gone").exists()


@pytest.mark.parametrize(
    ("part", "error", "models"),
    [
        ("refuse('data')", DataError, ("trees", "neural")),
        ("die()", TrialError, ("trees", "neural")),
        ("die()", TrialError, ("neural",)),
        ("refuse('lost')", ExecutorLostError, ("trees", "neural")),
    ],
)
def test_without_a_table_the_end_of_the_worker_that_makes_it_ends_the_run(
    part: str, error: type[Exception], models: tuple[str, ...], play: Play, paths: RunPaths
) -> None:
    with pytest.raises(error, match=r"the reason|killed by signal 9"):
        play(part, "wait()", has_table=False, models=models)
    for pid in starts(paths, "neural"):
        assert not psutil.pid_exists(pid)


def test_a_worker_that_cannot_be_started_ends_those_that_were(
    play: Play, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = launch._start

    def limited(log: Path, lane: LanePlan, branch: Branch, *more: Any) -> subprocess.Popen[bytes]:
        if branch == "trees":
            return start(log, lane, branch, *more)
        while not starts(paths):
            time.sleep(0.01)
        raise DeviceError("no further process can start.")

    monkeypatch.setattr(launch, "_start", limited)
    with pytest.raises(DeviceError, match="no further process"):
        play("wait()")
    assert not psutil.pid_exists(*starts(paths))


def test_a_lost_executor_ends_the_run_whose_driver_starts_again(play: Play, paths: RunPaths) -> None:
    with pytest.raises(ExecutorLostError, match="the reason"):
        play("refuse('lost')", "wait()")


@pytest.mark.process
def test_a_worker_that_closes_for_long_is_not_waited_for_and_ends_with_the_run(
    play: Play, paths: RunPaths
) -> None:
    closing: list[str] = []
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); finish(); wait()"
    assert play(deaf, closing=closing) == Outcome(failed={}, notes={})
    assert "0/trees" in closing and len(starts(paths)) == 1
    assert not any(map(psutil.pid_exists, starts(paths)))


@pytest.mark.process
def test_a_worker_that_crashes_in_native_code_is_started_once_more_for_all_that_is_not_done(
    play: Play, paths: RunPaths
) -> None:
    crash = """
if first:
    say("trial_failed", trial="trees-s7", text="broken by what then crashed")
    say("phase", text="training")
    die(signal.SIGSEGV)
end = time.time() + 2.5  # it computes, and says nothing
while time.time() < end: pass
finish("trees-s7")
finish("trees-s8")
"""
    outcome = play(crash, "finish('neural-s7'); finish('neural-s8')", repeats=2)
    note = "its worker crashed with signal 11 while training, and was started once more"
    assert outcome == Outcome(failed={}, notes={TREES: note, "trees-s8": note})
    assert len(starts(paths)) == 2


def test_but_not_twice(play: Play, paths: RunPaths) -> None:
    outcome = play("die(signal.SIGABRT)", "wait(1); finish()")
    reason = f"lane 0: the trees worker was killed by signal 6; see {paths.root}/{TREES_LOG}."
    assert outcome.failed == {TREES: reason}
    assert outcome.notes == {
        TREES: "its worker crashed with signal 6 while starting, and was started once more"
    }
    assert len(starts(paths)) == 2


@pytest.mark.process
def test_a_worker_that_hangs_is_started_once_more_and_fails_the_second_time(
    play: Play, paths: RunPaths
) -> None:
    begin = time.monotonic()
    outcome = play("say('phase', text='training'); wait()")
    assert time.monotonic() - begin < 60
    hung = r"hung: nothing done for \d s while training"
    reason = rf"lane 0: the trees worker failed 2 times, at last it {hung}; the stacks of its threads are in "
    assert re.fullmatch(reason + re.escape(f"{paths.root}/{TREES_LOG}."), outcome.failed[TREES])
    note = rf"its worker {hung.replace(':', ',')}, and was started once more"
    assert re.fullmatch(note, outcome.notes[TREES])
    assert len(starts(paths)) == 2 and not any(map(psutil.pid_exists, starts(paths)))
    assert paths.trial(NETWORK).done.exists()


@pytest.mark.process
def test_a_worker_that_hung_and_then_dies_fails_with_its_last_reason(play: Play, paths: RunPaths) -> None:
    outcome = play("say('phase', text='training'); wait() if first else die()")
    assert "trees worker was killed by signal 9" in outcome.failed[TREES]
    assert len(starts(paths)) == 2


@pytest.mark.process
def test_a_worker_that_waits_for_others_does_not_hang(play: Play, paths: RunPaths) -> None:
    trees = """
if number == 0:
    for _ in range(25):
        say("alive")
        wait(.1)
    write_table()
    say("phase", text="waiting for the network")
wait(2.5)
finish()
"""
    outcome = play(trees, has_table=False, lanes=2)
    assert outcome == Outcome(failed={}, notes={})
    assert len(starts(paths)) == len(starts(paths, lane=1)) == 1
