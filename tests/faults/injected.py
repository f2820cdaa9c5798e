"""One fault in one real run: injected when a phase begins, and the end that is promised for it.

A case ends in one of three ways: ``finished`` (what was lost was tried again, and said), ``resumable``
(`--resume` gives the numbers of an undisturbed run) or ``refused`` (one sentence and its exit code). In each
of them nothing is left: no process, no temporary file, no half-written file. SPARKGPU_FAULTS_RECORD names a
file to which every case adds a line; ``python -m tests.faults.table FILE`` makes a table of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psutil
from running import COMMAND, Running, finished, started, until

from sparkgpu.core.config.registry.engines import Branch
from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.files import read_json

Outcome = Literal["finished", "resumable", "refused"]
Metrics = Mapping[str, Any]

BOUND_S = 60.0
CASE_S = 600
"""The timeout of a test with one case: the run to its phase, the fault, and the rest of it resumed."""

OPTIONS = (
    "--target", "target", "--cpu-lanes", "1", "--set", "report.level=short", "--set", "hang_after_s=10",
    "--set", "trees.ntrees=100", "--set", "trees.early_stopping_rounds=0", "--set", "neural.architecture=mlp",
    "--set", "neural.hidden=[32]", "--set", "neural.batch_size=32", "--set", "neural.epochs=40",
    "--set", "neural.patience=0", "--set", "neural.checkpoint_minutes=1e-6",
)  # fmt: skip

PHASES: dict[str, tuple[str, ...]] = {
    "start": ("starting Spark", "waiting for the table"),
    "reading": ("reading the table",),
    "preparation": ("reading the source", "splitting", "fitting the feature pipeline", "writing the table"),
    "training": ("training",),
    "prediction": ("predicting",),
}
"""What a worker reports when a phase begins; scores and report have no worker, but files."""

ROLES: dict[str, str] = {
    "tree worker": r"sparkgpu\.lanes\.worker .*--branch trees",
    "neural worker": r"sparkgpu\.lanes\.worker .*--branch neural",
    "JVM": r"java .*PythonGatewayServer|java .*SparkSubmit .*pyspark-shell",
    "Python worker of Spark": r"pyspark[./]daemon",
    "rank": r"sparkgpu\.neural\.ranks",
    "driver": r"sparkgpu\.lanes\.cluster\.driver",
    "executor": r"java .*CoarseGrainedExecutorBackend",
}
"""The command line of each kind of process."""

_HALF = re.compile(r"\.tmp$|^_temporary$|^\..+\.\d+$")


class Case:
    """A run in progress and the fault that meets it; `since` is when the fault came."""

    def __init__(self, run: Running, temporary: Path, own: Mapping[str, str]) -> None:
        self.run = run
        self.temporary = temporary
        self.since = time.monotonic()
        self.line: dict[str, Any] = {}
        self._environ = own

    def processes(self, role: str, among: Iterable[int] = ()) -> list[psutil.Process]:
        """The living processes of a role; those of executors are below `among`, the workers of a cluster."""
        found = [self.run.process.pid, *among]
        if role == "run":
            return [psutil.Process(found[0])]
        wanted, living = re.compile(ROLES[role]), []
        for process in {child for pid in found for child in _below(pid)}:
            with suppress(psutil.Error):
                if wanted.search(" ".join(process.cmdline())):
                    living.append(process)
        return sorted(living, key=lambda process: process.create_time())

    def process(self, role: str, among: Iterable[int] = (), *, newest: bool = False) -> psutil.Process:
        """The first process of a role, or the newest, once there is one."""
        found: list[psutil.Process] = []

        def there() -> bool:
            found[:] = self.processes(role, among)
            return bool(found)

        until(there, f"a process: {role}", 60, self.run.process)
        return found[-1 if newest else 0]

    def reach(self, phase: str, branch: Branch = "trees", within_s: float = 150.0) -> None:
        """Wait until the run's only lane begins a phase."""
        paths = self.run.paths
        reader, texts = EventReader(paths.lane(0).events(branch)), PHASES.get(phase, (phase,))
        begun: dict[str, Callable[[], bool]] = {
            "scores": lambda: len([*paths.root.glob("trials/*/DONE")]) == len(self._trials()) > 0,
            "report": paths.metrics.exists,
        }

        def reported() -> bool:
            return any(event.kind == "phase" and event.text in texts for event in reader.new())

        until(begun.get(phase, reported), f"{branch}: {phase}", within_s, self.run.process)

    def _trials(self) -> list[Any]:
        with suppress(OSError, ValueError):
            return list(read_json(self.run.paths.plan)["trials"])
        return []

    def inject(self, fault: Callable[[], object]) -> None:
        """Do it. The bound counts from here."""
        self.since = time.monotonic()
        fault()

    def send(self, number: signal.Signals, process: psutil.Process) -> None:
        self.inject(lambda: process.send_signal(number))

    def send_to(self, number: signal.Signals, who: str) -> None:
        """To the process of ``the run``, or to that and all that it started."""
        roles = () if who == "the run" else ROLES
        found = [self.process("run"), *(process for role in roles for process in self.processes(role))]
        self.inject(lambda: None)
        for process in found:
            with suppress(psutil.NoSuchProcess):  # some end with the first
                process.send_signal(number)

    def ends(
        self, outcome: Outcome, *, code: int, said: str = "", whole: Callable[[], Metrics] | None = None,
        within_s: float = BOUND_S,
    ) -> None:  # fmt: skip
        """Check the promised end and exit code; a resumed run must give the numbers of `whole`.

        `said` is a pattern, looked for in both outputs and the notes on trials.
        """
        run = self.run
        status = run.wait(max(1.0, within_s - (time.monotonic() - self.since)))
        self.line |= {"seconds": round(time.monotonic() - self.since, 1), "code": status}
        notes = [trial.get("notes") for trial in run.metrics["trials"]] if run.paths.metrics.exists() else []
        printed = f"status {status}\n{run.stdout}\n{run.stderr}\n{notes}"
        assert status == code, printed
        assert "Traceback" not in printed, printed
        assert re.search(said, printed), f"not said: {said}\n{printed}"
        self.nothing_left(killed=status < 0)
        if outcome == "finished":
            assert {trial["status"] for trial in run.metrics["trials"]} == {"done"}, printed
        elif outcome == "refused":
            lines = run.stderr.splitlines()
            assert lines and all(line.startswith("sparkgpu: ") for line in lines), printed
        else:
            assert whole is not None
            self.resumes_to(whole())
        self.line["outcome"] = outcome

    def resumes_to(self, whole: Metrics) -> None:
        """Check that the run goes on to the numbers of an undisturbed one."""
        rest = finished(
            [*COMMAND, "run", "--resume"], self.run.paths.root, self.temporary.parent, environ=self._environ
        )
        for name in ("models", "comparison"):
            assert rest.metrics[name] == whole[name]
        self.nothing_left()

    def nothing_left(self, *, killed: bool = False) -> None:
        """Check it, apart from the files of a run that was `killed`, which the next run removes."""
        last: list[str] = ["not looked yet"]

        def nothing() -> bool:
            last[:] = [*self.run.left_behind(), *_living(self.temporary)]
            if not killed:
                last.extend(map(str, [*self.temporary.iterdir(), *half_written(self.run.paths.root)]))
                last.extend(map(str, self.run.paths.root.glob("running.json")))
            return not last

        try:
            until(nothing, "nothing is left", 15)
        except AssertionError:
            raise AssertionError(f"left: {last}") from None


@contextmanager
def injected(
    fault: str,
    phase: str,
    source: Path,
    folder: Path,
    *options: str,
    command: Iterable[str | Path] = (),
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Case]:
    """A small run of `source` in ``folder/out`` with a temporary folder of its own, for one fault in a phase.

    `command` is another command than that of a run here.
    """
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    own = {**environ, "TMPDIR": str(temporary)}
    words = [*command] or [*COMMAND, "run", source, *OPTIONS, *options]
    case: Case | None = None
    try:
        with started(words, folder / "out", folder, own) as run:
            case = Case(run, temporary, own)
            yield case
    finally:
        line = {"outcome": "not as promised", **(case.line if case else {})}
        if record := os.environ.get("SPARKGPU_FAULTS_RECORD"):
            with Path(record).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"fault": fault, "phase": phase, **line}) + "\n")


def half_written(root: Path) -> list[Path]:
    return [file for file in root.rglob("*") if _HALF.search(file.name)]


def _living(temporary: Path) -> Iterator[str]:
    """The processes whose temporary folder it is, or lies in it: all of a run on this machine."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and (
                process.environ().get("TMPDIR", "").startswith(str(temporary))
            ):
                yield f"{process.pid} {' '.join(process.cmdline())[:120]}"


def _below(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []
