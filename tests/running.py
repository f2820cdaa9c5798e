"""Starts the real command and watches all its processes: commands, listeners, logins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow.parquet as pq

from sparkgpu.core.config.registry.engines import Branch
from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.demo import DEMO_TARGET
from sparkgpu.core.table.demo_table import write_demo

REPOSITORY = Path(__file__).parents[1]
COMMAND = (sys.executable, "-m", "sparkgpu")
SMALL = (
    "--set", "trees.ntrees=20", "--set", "neural.epochs=2", "--set", "neural.hidden=[32]",
    "--set", "report.level=short",
)  # fmt: skip
_SAMPLE_S = 0.5  # a look takes some 20 ms


def write_adult(folder: Path) -> tuple[Path, str, float]:
    """A real table of tens of thousands of rows, its target, and a ROC AUC that small trees always reach."""
    adult = REPOSITORY.parent / "shared" / "data" / "adult.parquet"
    if adult.exists():
        return adult, "income", 0.90
    flights = pq.read_table(write_demo(folder)).slice(0, 30_000)
    pq.write_table(flights, folder / "flights.parquet")
    return folder / "flights.parquet", DEMO_TARGET, 0.65


def write_table(name: str, folder: Path) -> Path:
    """One of scikit-learn's real tables (``breast_cancer``, ``wine``, ``diabetes``), target ``target``."""
    import sklearn.datasets

    frame = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    file = folder / f"{name}.parquet"
    frame.to_parquet(file)
    return file


def kept(paths: RunPaths, weights: Mapping[str, float]) -> pd.DataFrame:
    """The run's own predictions of the test rows by row id, mixed from its trials."""
    parts = []
    for trial, weight in weights.items():
        found = pq.read_table(paths.trial(trial).predictions).to_pandas().set_index("row_id")
        parts.append(found[found["split"] == "test"].filter(regex="^pr").sort_index() * weight)
    return sum(parts[1:], parts[0])


def that_decides(root: Path, folder: Path) -> tuple[RunPaths, str]:
    """A copy of a run, without its rows, that decides by a rule, and what is said of that rule.

    Its metric is of a package that is not here.
    """
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns("split=*"))
    paths = RunPaths(root=folder)
    for path in (paths.table, paths.schema, paths.metrics):
        path.chmod(0o700)
    schema, found = (json.loads(file.read_text()) for file in (paths.schema, paths.metrics))
    positive = schema["classes"][1]
    schema |= {"metric": "toy-cost", "decision": {"rule": "f1", "positive": 1}}
    decision = {
        "rule": "f1", "positive": positive, "threshold": 0.3, "goal": "F1 of yes", "value": None,
        "plain": None, "ci95": [None, None],
    }  # fmt: skip
    found["models"] = [model | {"decision": decision} for model in found["models"]]
    paths.schema.write_text(json.dumps(schema))
    paths.metrics.write_text(json.dumps(found))
    return paths, f"predictions follow the run's decision: {positive} from a probability of 0.3000 on"


@dataclass(kw_only=True)
class Seen:
    """What was seen of a run's processes while it ran."""

    processes: dict[int, psutil.Process] = field(default_factory=dict)
    commands: set[str] = field(default_factory=set)
    listeners: set[tuple[str, int]] = field(default_factory=set)
    owners: dict[int, int] = field(default_factory=dict)
    """Port to the process that listened on it last."""
    together: list[frozenset[int]] = field(default_factory=list)
    """The ports that were open at the same time, one entry per change."""
    answers: dict[int, int] = field(default_factory=dict)
    """Port to the status of its first answer without a login."""
    logins: dict[Path, tuple[int, str]] = field(default_factory=dict)
    """Login file to its mode and its password."""


class Running:
    """A run in progress. Its standard output and error are files, so that nothing waits for a reader."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, folder: Path) -> None:
        self.process = process
        self.paths = RunPaths(root=out)
        self.seen = Seen()
        self._folder = folder
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def stdout(self) -> str:
        return (self._folder / "stdout").read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return (self._folder / "stderr").read_text(encoding="utf-8")

    @property
    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.paths.metrics.read_text(encoding="utf-8"))
        return found

    @property
    def port_bases(self) -> list[int]:
        plan = json.loads(self.paths.plan.read_text(encoding="utf-8"))
        return [lane["port_base"] for lane in plan["lanes"]]

    @property
    def scratch_folders(self) -> set[Path]:
        """The processes of the workers, by their command lines, and the run's own process."""
        words = [command.split("\0") for command in self.seen.commands]
        workers = {Path(line[line.index("--scratch") + 1]) for line in words if "--scratch" in line}
        return workers | {folder.parent for folder in workers}

    def wait(self, within_s: float) -> int:
        status = self.process.wait(timeout=within_s)
        self.stop_watching()
        return status

    def wait_for_phase(self, text: str, lane: int, branch: Branch, within_s: float = 90.0) -> None:
        """Wait until a worker reports the start of the phase `text`."""
        reader = EventReader(self.paths.lane(lane).events(branch))
        until(
            lambda: any(event.kind == "phase" and event.text == text for event in reader.new()),
            f"lane {lane} {branch}: {text}", within_s, self.process,
        )  # fmt: skip

    def wait_for_jvm(self, within_s: float = 60.0) -> None:
        """Wait until a worker has started its JVM; Spark is not up at that time."""

        def there() -> bool:
            self.look()
            return any("PythonGatewayServer" in command for command in self.seen.commands)

        until(there, "a JVM", within_s, self.process)

    def worker(self, lane: int, branch: Branch) -> psutil.Process:
        wanted = ["--lane", str(lane), "--branch", branch]
        self.look()
        for process in self.seen.processes.values():
            with suppress(psutil.Error):
                line = process.cmdline()
                if any(line[at : at + 4] == wanted for at in range(len(line))):
                    return process
        raise AssertionError(f"no {branch} worker of lane {lane}")

    def signal(self, number: signal.Signals) -> float:
        """Send a signal to the parent only, after a last sample of its processes. Returns the time."""
        self.stop_watching()
        self.look()
        self.process.send_signal(number)
        return time.monotonic()

    def left_behind(self) -> list[str]:
        """What is alive of the run: processes that were seen or name its folders, and their listeners."""
        own = [*map(str, self.scratch_folders), str(self.paths.root)]
        found: list[str] = []
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            with suppress(psutil.Error):
                line = " ".join(process.cmdline())
                known = self.seen.processes.get(process.pid) == process
                if (known or any(name in line for name in own)) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {line[:120]}")
        found += [
            f"port {one.laddr.port}"
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.pid in self.seen.processes
        ]
        return found

    def look(self) -> None:
        """Take one sample."""
        with self._lock, suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            listening: set[int] = set()
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.Error):
                    self._look_at(process, listening)
            if listening and (not self.seen.together or self.seen.together[-1] != listening):
                self.seen.together.append(frozenset(listening))

    def _look_at(self, process: psutil.Process, listening: set[int]) -> None:
        self.seen.processes[process.pid] = process
        line = process.cmdline()
        self.seen.commands.add("\0".join(line))
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                self.seen.listeners.add((connection.laddr.ip, connection.laddr.port))
                self.seen.owners[connection.laddr.port] = process.pid
                listening.add(connection.laddr.port)
        if "--scratch" in line:
            login = Path(line[line.index("--scratch") + 1]) / "h2o-login"
            with suppress(FileNotFoundError, IndexError):
                text = login.read_text(encoding="ascii")
                self.seen.logins[login] = login.stat().st_mode & 0o777, text.split(": ")[1].strip()

    def _watch(self) -> None:
        while not self._end.wait(_SAMPLE_S):
            self.look()
            with suppress(OSError, ValueError, KeyError):
                for base in set(self.port_bases) - self.seen.answers.keys():
                    self.seen.answers[base] = status_without_login(base, "/3/Cloud")

    def stop_watching(self) -> None:
        self._end.set()
        self._thread.join()


def status_without_login(port: int, path: str) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def until(
    condition: Callable[[], bool], what: str, within_s: float, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait for `condition`, or fail once the time is over or `process` has ended without it."""
    deadline = time.monotonic() + within_s
    while not condition():
        ended = process is not None and process.poll() is not None
        if ended and not condition():
            raise AssertionError(f"the run ended with status {process.returncode} before: {what}")  # type: ignore[union-attr]
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(0.01)


@contextmanager
def started(
    command: Sequence[str | Path], out: Path, folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Start `command` with ``--out out`` in `folder`; the block's end always ends all its processes."""
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [*map(str, command), "--out", str(out)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=None if environ is None else dict(environ),
            start_new_session=True,
        )
    running = Running(process, out, folder)
    try:
        yield running
    finally:
        running.stop_watching()
        running.look()
        process.kill()
        process.wait()
        for left in running.seen.processes.values():
            with suppress(psutil.Error):
                left.kill()


def finished(
    command: Sequence[str | Path],
    out: Path,
    folder: Path,
    *,
    code: int = 0,
    within_s: float = 200.0,
    environ: Mapping[str, str] | None = None,
) -> Running:
    """The run after its end, with the expected exit code."""
    with started(command, out, folder, environ) as running:
        status = running.wait(within_s)
        assert status == code, f"status {status}\n{running.stdout}\n{running.stderr}"
        return running
