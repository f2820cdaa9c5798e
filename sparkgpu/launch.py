"""Starts the workers of every lane, follows them to their end, and sees that none is left behind.

A worker is a process of its own session with the lane's environment: only its device is visible to it,
its threads are counted, nothing of an outer Spark is inherited. A lane that dies is reported and the others
go on; only when the preparation of the table fails is everything over.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sparkgpu.artifacts import RunPaths, read_json, write_json
from sparkgpu.errors import ExecutorLostError, TrialError, error_of_kind
from sparkgpu.events import Branch, Event, EventReader
from sparkgpu.plan import LanePlan, Plan, prepares_table
from sparkgpu.processes import end_groups

_POLL_S = 0.05
_CLOSING_S = 5.0
_BRANCHES: tuple[Branch, Branch] = ("trees", "neural")

# What an outer Spark, Slurm step or notebook may have set and a lane must not follow.
_NOT_INHERITED = (
    "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH",
    "_PYSPARK_DRIVER_CONN_INFO_PATH", "_PYSPARK_DRIVER_CALLBACK_HOST", "SPARK_SUBMIT_OPTS",
    "SPARK_ENV_LOADED", "SPARK_LOCAL_DIRS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS", "MASTER", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip


# What spark-submit puts before the Python packages: its own copies, which come without Spark's jars.
_SPARK_PACKAGES = re.compile(r"(/pyspark\.zip|/py4j-[^/]+\.zip|/spark-core_[^/]+\.jar)$")

_NEURAL_ENVIRONMENT = {
    # MKL otherwise sums some gradients differently for one and for two threads, and the network takes more
    # threads when the trees are done.
    "MKL_CBWR": "AUTO,STRICT",
    # Keep the memory of a step for the next one: handing it back costs hundreds of page faults a step.
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20),
}
# Ranks of one machine meet on loopback; nothing of theirs listens elsewhere.
_ONE_MACHINE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


@dataclass(kw_only=True)
class Worker:
    """One running worker process."""

    lane: LanePlan
    branch: Branch
    process: subprocess.Popen[bytes]
    reader: EventReader
    prepares: bool
    done: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the trials ended: names of those done, and the reasons of those that failed."""

    done: frozenset[str]
    failed: Mapping[str, str]


class Crew:
    """The workers of a run, while they run."""

    def __init__(self, paths: RunPaths, plan: Plan, workers: list[Worker]) -> None:
        self._paths = paths
        self._plan = plan
        self._workers = workers

    def process_ids(self) -> list[int]:
        """Of the workers that are alive (their children are found from them)."""
        return [worker.process.pid for worker in self._workers if worker.process.poll() is None]

    def follow(self, on_event: Callable[[int, Branch, Event], None], on_table: Callable[[], None]) -> Outcome:
        """Wait until every trial is done or failed, handing on what the workers report.

        `on_table` is called once the table is there. Workers may still be closing Spark when it returns.

        Raises the error that the preparation of the table ended with.
        """
        running = list(self._workers)
        table_seen = False
        while any(self._undone(worker) for worker in running):
            ended = [worker for worker in running if worker.process.poll() is not None]
            for worker in running:  # after asking who ended, so that their last words are read
                for event in worker.reader.new():
                    _note(worker, event)
                    on_event(worker.lane.index, worker.branch, event)
            if not table_seen and self._paths.schema.exists():
                table_seen = True
                on_table()
            for worker in ended:
                running.remove(worker)
                self._settle(worker, table_seen)
            time.sleep(_POLL_S)
        failed = {name: reason for worker in self._workers for name, reason in worker.failed.items()}
        names = (trial.name for trial in self._plan.trials)
        done = frozenset(name for name in names if self._paths.trial(name).done.exists())
        return Outcome(done=done, failed=failed)

    def _undone(self, worker: Worker) -> bool:
        trials = self._plan.of(worker.lane.index, worker.branch)
        return any(trial.name not in worker.done | worker.failed.keys() for trial in trials)

    def _settle(self, worker: Worker, table_is_there: bool) -> None:
        """A worker has ended: its trials that are neither done nor failed have failed with it."""
        end_groups([worker.process])
        trials = self._plan.of(worker.lane.index, worker.branch)
        left = [trial.name for trial in trials if trial.name not in worker.done | worker.failed.keys()]
        if not left and (table_is_there or not worker.prepares):
            return
        lane = self._paths.lane(worker.lane.index)
        file = lane.error(worker.branch)
        if file.exists():
            found = read_json(file)
        else:
            ended = ending(worker.process.returncode)
            message = f"lane {worker.lane.index}: the {worker.branch} worker {ended}; see {lane.log}."
            found = {"kind": "trial", "message": message}
        if (worker.prepares and not table_is_there) or found["kind"] == ExecutorLostError.kind:
            raise error_of_kind(found["kind"], found["message"])
        write_json(lane.root / "error.json", {"branch": worker.branch, **found})
        for name in left:
            worker.failed[name] = found["message"]


def _note(worker: Worker, event: Event) -> None:
    if event.kind == "trial_done" and event.trial:
        worker.done.add(event.trial)
    elif event.kind == "trial_failed" and event.trial:
        worker.failed[event.trial] = event.text


def ending(status: int) -> str:
    """How a worker ended that did not say why."""
    if status < 0:
        return f"was killed by signal {-status}" + (" (out of memory?)" if status == -9 else "")
    return f"ended with status {status} without saying why"


@contextmanager
def crew(
    paths: RunPaths, plan: Plan, *, scratch: Path, source: str, title: str, environ: Mapping[str, str]
) -> Iterator[Crew]:
    """Start every lane's workers; none of them, nor any process of theirs, is alive after the block."""
    workers: list[Worker] = []
    try:
        for lane in plan.lanes:
            workers += start_lane(
                paths, plan, lane, scratch=scratch, source=source, title=title, environ=environ,
                visible=partial(plan.visible_devices, lane.index),
            )  # fmt: skip
        yield Crew(paths, plan, workers)
        _wait_closed(workers)
    finally:
        end_groups([worker.process for worker in workers])


def start_lane(
    paths: RunPaths,
    plan: Plan,
    lane: LanePlan,
    *,
    scratch: Path,
    source: str,
    title: str,
    environ: Mapping[str, str],
    visible: Callable[[Branch], str],
) -> list[Worker]:
    """Start the workers of one lane that have something to do; `visible` is what CUDA may see in each."""
    folder = paths.lane(lane.index)
    folder.root.mkdir(parents=True, exist_ok=True)
    write_json(folder.lane, lane)
    workers = []
    for branch in _BRANCHES:
        trials = [paths.trial(trial.name) for trial in plan.of(lane.index, branch)]
        prepares = prepares_table(paths, lane.index, branch)
        if not prepares and all(trial.done.exists() for trial in trials):
            continue
        nodes = max((trial.nodes for trial in plan.of(lane.index, branch)), default=1)
        environment = partial(
            lane_environment, lane, branch, visible=visible(branch), environ=environ, nodes=nodes
        )
        workers.append(_start(paths, lane, branch, prepares, scratch, source, title, environment))
    return workers


def _wait_closed(workers: list[Worker]) -> None:
    """Give workers whose trials are over the time to close Spark and H2O in good order."""
    deadline = time.monotonic() + _CLOSING_S
    while any(worker.process.poll() is None for worker in workers) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _start(
    paths: RunPaths,
    lane: LanePlan,
    branch: Branch,
    prepares: bool,
    scratch: Path,
    source: str,
    title: str,
    environment: Callable[[Path], dict[str, str]],
) -> Worker:
    own = scratch / f"lane-{lane.index}-{branch}"
    own.mkdir(mode=0o700)
    command = [
        sys.executable, "-m", "sparkgpu.lane", "--run", str(paths.root), "--lane", str(lane.index),
        "--branch", branch, "--scratch", str(own), "--source", source, "--title", title,
        "--parent", str(os.getpid()),
    ]  # fmt: skip
    folder = paths.lane(lane.index)
    try:
        with folder.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(own),
                start_new_session=True,  # Ctrl-C reaches the parent alone, and the group can be ended whole
            )
    except OSError as error:
        raise TrialError(f"lane {lane.index}: its {branch} worker cannot be started ({error}).") from error
    return Worker(
        lane=lane,
        branch=branch,
        process=process,
        reader=EventReader(folder.events(branch)),
        prepares=prepares,
    )


def lane_environment(
    lane: LanePlan,
    branch: Branch,
    scratch: Path,
    *,
    visible: str,
    environ: Mapping[str, str],
    nodes: int = 1,
) -> dict[str, str]:
    """The environment of a worker: set before it starts, since CUDA and OpenMP read it when they load.

    `visible` is its CUDA_VISIBLE_DEVICES: its lane's device, or those of a gang; `nodes` how many machines
    its networks train on.
    """
    threads = str(lane.tree_threads if branch == "trees" else lane.neural_threads)
    return {
        **outside_environment(environ),
        **(_NEURAL_ENVIRONMENT if branch == "neural" else {}),
        **(_ONE_MACHINE if branch == "neural" and nodes == 1 else {}),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": "1",
        # A thread that waits must sleep, not spin: the lane's other branch wants the core.
        "OMP_WAIT_POLICY": "PASSIVE",
        # After some 20 microseconds, that is: a network's steps have many short waits, and going to sleep
        # in each of them took a third of its speed on two threads.
        "GOMP_SPINCOUNT": "5000",
        "TMPDIR": str(scratch),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def outside_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what an outer Spark, Slurm step or notebook has set for itself."""
    inherited = {key: value for key, value in environ.items() if key not in _NOT_INHERITED}
    if "PYTHONPATH" in environ:
        inherited["PYTHONPATH"] = _without_spark(environ["PYTHONPATH"], environ.get("SPARK_HOME"))
    return inherited


def _without_spark(python_path: str, spark_home: str | None) -> str:
    own = f"{spark_home.rstrip('/')}/python" if spark_home else None
    entries = python_path.split(os.pathsep)
    kept = (entry for entry in entries if entry.rstrip("/") != own and not _SPARK_PACKAGES.search(entry))
    return os.pathsep.join(kept)
