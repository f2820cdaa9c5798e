"""Nothing waits forever: what hangs nevertheless is ended and tried once more."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pandas
import psutil
import pytest
from running import COMMAND, SMALL, Running, finished, started, until
from standalone import spark_environment, standalone

from sparkgpu.core.config.registry.engines import Branch
from sparkgpu.core.rundir.events import EventReader

pytestmark = pytest.mark.spark

SOON = ("--set", "hang_after_s=8")  # a healthy worker is never silent for so long
WITHIN_S = 90.0
RESTARTED = re.compile(r"its worker hung, nothing done for \d+ s while [^,]+, and was started once more")


def watching_imports(folder: Path, hangs: str = "") -> dict[str, str]:
    """The environment in which every process of a run watches its imports."""
    folder.mkdir()
    path = os.pathsep.join(
        filter(None, [str(Path(__file__).parent / "imports"), os.environ.get("PYTHONPATH")])
    )
    # Without what this process's scikit-learn has set, since a shell does not have it either.
    own = {name: value for name, value in os.environ.items() if not name.startswith("KMP_")}
    return {
        **own, "PYTHONPATH": path, "SPARKGPU_IMPORTS": str(folder), "SPARKGPU_IMPORT_HANGS": hangs,
    }  # fmt: skip


def imports_of_threads(run: Running, folder: Path, within_s: float) -> tuple[int | None, set[str]]:
    """The exit code of a run, None if it hangs, and the imports that threads began."""
    try:
        status = run.wait(within_s)
    except subprocess.TimeoutExpired:
        status = None
    return status, {line for file in folder.glob("*.threads") for line in file.read_text().splitlines()}


@pytest.mark.parametrize(
    "options",
    [
        ("--cpu-lanes", "1"),
        pytest.param(("--cpu-lanes", "2", "--set", "neural.data=stream"), marks=pytest.mark.slow),
        pytest.param(("--cpu-lanes", "2", "--strategy", "ddp", "--repeats", "1"), marks=pytest.mark.slow),
        pytest.param(("--cpu-lanes", "1", "--set", "trees.engine=lightgbm"), marks=pytest.mark.slow),
        pytest.param(("--cpu-lanes", "1", "--set", "split.folds=2"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_no_thread_imports_and_no_variable_is_set_while_threads_run(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "imports"
    # Texts, timestamps, and texts of both, since reading those may import more.
    table, rows = tmp_path / "shops.parquet", range(600)
    shops = pandas.DataFrame(
        {
            "shop": [("north", "south", None)[row % 3] for row in rows],
            "day": pandas.date_range("2024-03-01", periods=600, freq="7h"),
            "price": [f"{row % 71}.5" for row in rows],
            "asked": [f"2024-04-{1 + row % 28:02}" for row in rows],
            "late": [row * row % 101 > 40 for row in rows],
        }
    )
    shops.to_parquet(table)
    command = [*COMMAND, "run", table, "--target", "late", *options, *SMALL]
    with started(command, tmp_path / "out", tmp_path, watching_imports(folder)) as run:
        status, found = imports_of_threads(run, folder, 150)
    assert found == set()
    assert status == 0
    changed = {line for file in folder.glob("*.environment") for line in file.read_text().splitlines()}
    assert changed == set()
    # The parent, a worker for each branch and, where Spark writes the table, its own Python workers.
    assert len(list(folder.glob("*.watched"))) >= (4 if "split.folds=2" in options else 3)


@pytest.mark.slow
def test_nor_does_one_of_the_driver_on_a_cluster(wine: Path, tmp_path: Path) -> None:
    folder = tmp_path / "imports"
    environ = {**spark_environment(), **watching_imports(folder)}
    with standalone(tmp_path) as cluster:  # whose executors are watched as well
        command = cluster.submit(wine, "--target", "target", *SMALL)
        with started(command, tmp_path / "out", tmp_path, environ) as run:
            status, found = imports_of_threads(run, folder, 200)
            assert found == set()
            assert status == 0, run.stdout + run.stderr


@pytest.mark.slow
def test_a_worker_that_crashes_is_started_once_more(wine_in_parts: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "run", wine_in_parts, "--target", "target", "--cpu-lanes", "1", *SMALL]
    with started(command, tmp_path / "out", tmp_path) as run:
        run.wait_for_phase("starting Spark", 0, "trees")
        run.worker(0, "trees").send_signal(signal.SIGSEGV)
        assert run.wait(150) == 0, run.stdout + run.stderr
        assert run.left_behind() == []
    notes = {trial["model"]: trial["notes"] for trial in run.metrics["trials"]}
    assert notes["trees"] == [
        "its worker crashed with signal 11 while starting Spark, and was started once more"
    ]
    log = run.paths.lane(0).log.read_text(encoding="utf-8", errors="replace")
    assert "Fatal Python error: Segmentation fault" in log and "in _spark" in log


def wait_for_restart(run: Running, branch: Branch) -> None:
    """Wait until the run reports that it started the worker once more."""
    reader = EventReader(run.paths.lane(0).events(branch))
    until(
        lambda: any(event.text.startswith("hung: nothing done for") for event in reader.new()),
        f"{branch} is started once more", WITHIN_S, run.process,
    )  # fmt: skip


def assert_restarted(run: Running, branch: Branch) -> None:
    """Check that the run succeeded and that only `branch` was started once more."""
    notes = {trial["model"]: trial["notes"] for trial in run.metrics["trials"]}
    assert [bool(RESTARTED.fullmatch(note)) for note in notes[branch]] == [True]
    assert all(not found for model, found in notes.items() if model != branch)
    assert f"{branch}: hung: nothing done for" in run.stdout
    assert notes[branch][0] in (run.paths.report / "report.md").read_text(encoding="utf-8")
    assert run.left_behind() == []


LONG = (
    "--set", "neural.epochs=200", "--set", "trees.ntrees=2000", "--set", "trees.early_stopping_rounds=0",
)  # fmt: skip


@pytest.mark.parametrize(
    ("branch", "phase", "process", "options"),
    [
        ("trees", "reading the source", "worker", ("--set", 'models=["trees"]')),
        pytest.param("trees", "handing the table to H2O", "java", (), marks=pytest.mark.slow),
        pytest.param("trees", "training", "worker", LONG, marks=pytest.mark.slow),
        pytest.param("neural", "training", "worker", LONG, marks=pytest.mark.slow),
    ],
)
def test_a_worker_or_its_jvm_that_stalls_is_started_once_more(
    branch: Branch, phase: str, process: str, options: tuple[str, ...], wine: Path, tmp_path: Path
) -> None:
    command = [*COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "1", *SMALL, *SOON, *options]
    with started(command, tmp_path / "out", tmp_path) as run:
        run.wait_for_phase(phase, 0, branch)
        worker = run.worker(0, branch)
        (still,) = [worker] if process == "worker" else [c for c in worker.children() if c.name() == process]
        still.send_signal(signal.SIGSTOP)
        wait_for_restart(run, branch)
        assert run.wait(240) == 0, run.stdout + run.stderr
        assert_restarted(run, branch)
    log = run.paths.lane(0).log.read_text(encoding="utf-8")
    assert "most recent call first" in log  # stacks of Python's threads
    assert branch == "neural" or process == "java" or "Full thread dump" in log  # those of the JVM


@pytest.mark.slow
@pytest.mark.parametrize(("branch", "module"), [("trees", "pandas"), ("trees", "h2o"), ("neural", "torch")])
def test_a_thread_that_sleeps_in_an_import_holds_up_one_worker_only_for_a_while(
    branch: Branch, module: str, wine: Path, tmp_path: Path
) -> None:
    environ = watching_imports(tmp_path / "imports", hangs=f"--branch {branch}:{module}")
    command = [*COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "1", *SMALL, *SOON]
    run = finished(command, tmp_path / "out", tmp_path, within_s=240, environ=environ)
    assert_restarted(run, branch)


@pytest.mark.slow
def test_a_worker_that_hangs_twice_has_failed_and_the_other_branch_is_kept(
    wine: Path, tmp_path: Path
) -> None:
    command = [*COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "1", *SMALL, *SOON]
    with started(command, tmp_path / "out", tmp_path) as run:
        run.wait_for_phase("handing the table to H2O", 0, "trees")
        first = run.worker(0, "trees")
        first.send_signal(signal.SIGSTOP)

        def second() -> psutil.Process | None:
            run.seen.processes.pop(first.pid, None)
            try:
                found = run.worker(0, "trees")
            except AssertionError:
                return None
            return found if found.pid != first.pid else None

        until(lambda: second() is not None, "another tree worker", WITHIN_S, run.process)
        again = second()
        assert again is not None
        again.send_signal(signal.SIGSTOP)
        assert run.wait(240) == 5
        assert run.left_behind() == []
    status = {trial["model"]: trial["status"] for trial in run.metrics["trials"]}
    assert status == {"trees": "failed", "neural": "done"}
    log = run.paths.lane(0).log
    assert re.search(
        r"lane 0: the trees worker failed 2 times, at last it hung: nothing done for \d+ s while .+; the "
        rf"stacks of its threads are in {re.escape(str(log))}\.",
        run.stdout,
    )


@pytest.mark.slow
def test_output_that_nobody_reads_stops_no_run(wine: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, b"full" * 1024)
        os.set_blocking(writer, True)
        out = tmp_path / "out"
        run = subprocess.run(
            [*COMMAND, "run", str(wine), "--target", "target", "--cpu-lanes", "1", *SMALL, "--out", str(out)],
            stdout=writer, stderr=subprocess.PIPE, text=True, timeout=150, check=False,
        )  # fmt: skip
    finally:
        os.close(reader)
        os.close(writer)
    assert run.returncode == 0
    assert run.stderr == "sparkgpu: nobody read standard output, so its last part was dropped.\n"
    assert (out / "report" / "index.html").exists()
