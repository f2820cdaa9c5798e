"""`sparkgpu monitor` shows a run by its files alone: one that grows, has ended, was stopped or killed."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_terminal import SCHEMA, ordinary_terminal, plan, results

from sparkgpu.core.config import toml
from sparkgpu.core.errors import ConfigError, DataError, NoticeToStop, TrialError
from sparkgpu.core.host.telemetry import Sample, append_sample
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.metrics_json import write_results
from sparkgpu.core.rundir.paths import RunPaths, clear_unfinished
from sparkgpu.present.terminal.monitor import attach
from sparkgpu.runs.folder import record_stop_reason

Call = Callable[..., tuple[int, str, str]]

__all__ = ["ordinary_terminal"]  # a fixture that also holds here


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """The folder of a run that has just begun."""
    found = RunPaths(root=tmp_path / "run")
    config = toml.load(options={"data.source": "flights.parquet", "data.target": "late"})
    write_text(found.config, toml.dump(config))
    return found


class Run:
    """Writes the files of a run, a step at each look of the one who is attached."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self._steps = self._all()
        self._began = time.time()

    def __call__(self, seconds: float) -> None:
        next(self._steps)

    def sample(self, second: float) -> None:
        append_sample(
            self.paths.telemetry, Sample(at=self._began + second, elapsed_s=second, cpu_percent=50.0)
        )

    def _all(self) -> Iterator[None]:
        lane = self.paths.lane(0)
        yield
        write_json(self.paths.plan, plan(lanes=1, repeats=1))
        self.sample(0)
        yield
        events = EventWriter(lane.events("trees"), lane.phases("trees"))
        with events.phase("starting Spark"):
            self.sample(1)
            yield
        write_json(self.paths.schema, SCHEMA)
        yield
        with events.phase("training", "trees-s7"):
            events.progress("trees-s7", 0.5, step=50, metric="roc_auc", value=0.75)
            yield
        events.trial_done("trees-s7")
        events.close()
        write_results(self.paths, results())
        yield
        write_text(self.paths.report / "index.html", "")
        yield


def end(paths: RunPaths) -> None:
    write_text(paths.report / "index.html", "")
    write_results(paths, results())


def said(text: str) -> list[str]:
    """The lines but for their seconds, which are those of the files."""
    return [line.partition("s] ")[2] if line.startswith("[") else line for line in text.splitlines()]


def test_a_growing_run_is_shown_as_it_goes_and_ends_with_its_result(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert attach(paths.root, wait=Run(paths)) == 5  # as the run itself: a trial failed
    lines = said(capsys.readouterr().out)
    assert lines[:7] == [
        "sparkgpu  flights.parquet, target late",
        "preset    fast, the default on CPU",
        "lane 0    cpu, 1 thread for trees and 1 for the network, 2.0 GiB of Java heap, ports from 54321",
        "trials    2: trees-s7, neural-s7",
        "repeats   1, one for each lane",
        "trees: starting Spark",
        "rows      30,000 (train 20,000, valid 5,000, test 5,000); 5 refused: no target value",
    ]
    trained = [line.partition(", up to")[0] for line in lines if line.startswith("trees:")]
    assert trained == [
        "trees: starting Spark", "trees: training (trees-s7)", "trees: trees-s7 50%, step 50, ROC AUC 0.7500",
        "trees: trees-s7 done",
    ]  # fmt: skip
    assert "neural-s8 failed: lane 1 died: signal [9]" in lines
    assert any(line.startswith(f"run     {paths.root}") for line in lines)


def test_a_finished_run_shows_its_result_at_once(paths: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(paths)
    for _ in range(7):
        run(0)

    def wait(seconds: float) -> None:
        raise AssertionError("there is nothing to wait for")

    assert attach(paths.root, wait=wait) == 5
    assert "Trees ahead of neural by 0.01" in capsys.readouterr().out
    failed_none = results().model_copy(update={"trials": results().done()})
    write_results(paths, failed_none)
    assert attach(paths.root, quiet=True, wait=wait) == 0
    shown = capsys.readouterr().out
    assert said(shown)[-1].startswith(f"report  {paths.report}/index.html  (")
    assert "trees-s7 done" not in shown and "Trees ahead of neural by 0.01" in shown


def test_a_run_whose_report_does_not_come_ends_without_it(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(paths, results())
    looks = iter([lambda: None, lambda: aged(paths, 61)])
    assert attach(paths.root, wait=lambda seconds: next(looks)()) == 5
    note, page = capsys.readouterr().out.splitlines()[-2:]
    assert note == f"note: there is no report; `sparkgpu report {paths.root}` makes it"
    assert page.startswith(f"report  {paths.report}/index.html  (")


def test_seconds_are_those_of_the_run_also_for_one_who_comes_late(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(paths)
    run._began -= 600.0
    for _ in range(4):
        run(0)
    run.sample(598.0)
    for _ in range(3):
        run(0)
    attach(paths.root)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.endswith("starting Spark")]
    assert line.startswith("[ 600.")


def test_where_no_run_has_begun_it_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        attach(tmp_path / "none")
    assert str(refusal.value) == (
        f"{tmp_path}/none: there is no such folder. Give the folder of a run, as `--out` named it."
    )
    with pytest.raises(ConfigError) as refusal:
        attach(tmp_path)
    assert str(refusal.value) == (
        f"{tmp_path}: it holds no run.toml, so no run has begun there. Give the folder of a run."
    )


def aged(paths: RunPaths, seconds: float) -> None:
    """As if nothing had happened in the folder for so long."""
    at = time.time() - seconds
    for file in paths.root.rglob("*"):
        os.utime(file, (at, at))


def test_a_killed_run_is_taken_for_dead_after_a_time(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(paths)
    for _ in range(5):
        run(0)
    aged(paths, 605)
    with pytest.raises(TrialError) as end:
        attach(paths.root, dead_s=0.01)
    assert re.sub(r"10:0\d", "10:05", str(end.value)) == (
        f"{paths.root}: no sign of life for 10:05 min. The run was killed, or its machine stopped; "
        f"`sparkgpu run --resume --out {paths.root}` goes on with it."
    )
    assert end.value.exit_code == 5


def test_silence_is_said_and_the_next_sign_too(paths: RunPaths, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(paths)
    for _ in range(5):
        run(0)
    aged(paths, 40)
    attach(paths.root, wait=run)
    assert "warning: no sign of life for 4" in capsys.readouterr().out
    paths.metrics.unlink()
    aged(paths, 40)
    looks = iter([lambda: None, lambda: run.sample(5), lambda: end(paths)])
    attach(paths.root, wait=lambda seconds: next(looks)())
    warnings = [line for line in said(capsys.readouterr().out) if line.startswith("warning")]
    assert [line.rpartition(" for ")[0] or line for line in warnings] == [
        "warning: no sign of life", "warning: there are signs of life again",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (NoticeToStop(), 130, "interrupted by a notice that its time is nearly over"),
        (TrialError("lane 0: its trees worker cannot be started."), 5,
         "lane 0: its trees worker cannot be started."),
    ],
)  # fmt: skip
def test_a_run_that_stopped_by_itself_says_why(
    paths: RunPaths, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    with pytest.raises(type(error)), record_stop_reason(paths):
        raise error
    assert attach(paths.root) == code
    assert capsys.readouterr().err == f"sparkgpu: the run stopped: {message}\n"
    clear_unfinished(paths)  # it is resumed
    assert not paths.stopped.exists()


def test_a_run_that_took_its_folder_with_it_was_refused_or_interrupted(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    def vanish(seconds: float) -> None:
        with pytest.raises(KeyboardInterrupt), record_stop_reason(paths):
            shutil.rmtree(paths.root)
            raise KeyboardInterrupt

    paths_of_copy = RunPaths(root=paths.root.with_name("copy"))
    shutil.copytree(paths.root, paths_of_copy.root)
    with pytest.raises(DataError) as refusal:
        attach(paths.root, wait=vanish)
    assert str(refusal.value) == (
        f"{paths.root}: the folder is gone: the run refused its table, or somebody removed it."
    )
    log = paths.root.with_name("copy.interrupted.log")
    log.write_text("")
    assert attach(paths_of_copy.root, wait=lambda seconds: shutil.rmtree(paths_of_copy.root)) == 130
    assert capsys.readouterr().err == (
        f"sparkgpu: the run was interrupted before it had a table; its log is {log}\n"
    )


def test_ctrl_c_detaches_and_leaves_the_run_alone(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    before = sorted(paths.root.rglob("*"))
    assert attach(paths.root, wait=interrupt) == 130
    assert capsys.readouterr().err == "sparkgpu: detached; the run goes on.\n"
    assert sorted(paths.root.rglob("*")) == before


def test_a_resumed_run_is_followed_from_its_new_beginning(
    paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(paths)
    for _ in range(5):
        run(0)

    def resume() -> None:
        clear_unfinished(paths)
        lane = paths.lane(0)
        events = EventWriter(lane.events("trees"), lane.phases("trees"))
        with events.phase("starting H2O"):
            events.close()

    looks: Iterator[Callable[[], object]] = iter([resume, lambda: end(paths)])
    attach(paths.root, wait=lambda seconds: next(looks)())
    assert "trees: starting H2O" in said(capsys.readouterr().out)


def test_the_command_ends_as_the_run_did(paths: RunPaths, call: Call) -> None:
    write_json(paths.stopped, {"exit_code": 130, "message": "interrupted"})
    code, _, err = call("monitor", paths.root)
    assert (code, err) == (130, "sparkgpu: the run stopped: interrupted\n")
    code, _, err = call("monitor", paths.root / "none")
    assert code == 2 and "there is no such folder" in err


def test_as_json_it_prints_what_the_run_found_and_shows_it_on_standard_error(
    paths: RunPaths, call: Call
) -> None:
    write_json(paths.plan, plan(lanes=1, repeats=1))
    write_results(paths, results())
    (paths.report).mkdir()
    (paths.report / "index.html").touch()
    code, out, err = call("monitor", paths.root, "--json")
    assert (code, out) == (5, paths.metrics.read_text(encoding="utf-8"))  # a trial failed
    assert "leader" in err
