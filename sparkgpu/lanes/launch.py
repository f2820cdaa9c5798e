"""Starts the workers of a lane, and starts them once more when they hang.

A worker is a process in its own session with the lane's environment: it sees only its device, has a fixed
number of threads, and inherits nothing from an outer Spark.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.registry.engines import BRANCHES, Branch
from sparkgpu.core.errors import TrialError, fault_of_machine
from sparkgpu.core.host.processes import end_groups, family
from sparkgpu.core.host.watchdog import Vitals, dump_stacks
from sparkgpu.core.plan.plan import LanePlan, Plan, prepares_table
from sparkgpu.core.rundir.events import Event, EventReader, EventWriter
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.source import Source
from sparkgpu.h2o.proven import cuda_cache

_RESTARTED = "; started once more"
# Faults of native code; SIGKILL is none of them, since the kernel sends it when memory runs out.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_GANG_FIRST_S = 20.0
FAR = 5
"""Other machines and catalogs may keep a process waiting this many times as long."""

# Variables that an outer Spark, Slurm step or notebook may have set, and that a lane must not inherit.
_NOT_INHERITED = (
    "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH",
    "_PYSPARK_DRIVER_CONN_INFO_PATH", "_PYSPARK_DRIVER_CALLBACK_HOST", "SPARK_SUBMIT_OPTS",
    "SPARK_ENV_LOADED", "SPARK_LOCAL_DIRS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS", "MASTER", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip


# spark-submit puts its own copies before the Python packages; those have no Spark jars.
_SPARK_PACKAGES = re.compile(r"(/pyspark\.zip|/py4j-[^/]+\.zip|/spark-core_[^/]+\.jar)$")

_NEURAL_ENVIRONMENT = {
    # Otherwise MKL sums some gradients differently with one thread and with two, and the network gets more
    # threads when the trees are done.
    "MKL_CBWR": "AUTO,STRICT",
    # Keep the memory of a step for the next one: returning it costs hundreds of page faults per step.
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20),
}
# Ranks on one machine connect on loopback and listen nowhere else.
_ONE_MACHINE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


@dataclass(kw_only=True, eq=False)
class Worker:
    """One running worker process.

    `vitals` are its signs of life; without any for `patience_s` seconds it counts as hung. `start` starts
    another process in its place (None: its trials share a process with others). `phase` is its last reported
    activity, and `over` names its trials that are done or left out.
    """

    lane: LanePlan
    branch: Branch
    process: subprocess.Popen[bytes]
    reader: EventReader
    prepares: bool
    vitals: Vitals
    patience_s: float
    start: Callable[[], subprocess.Popen[bytes]] | None = None
    over: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    phase: str = "starting"
    was_restarted: bool = False

    def hang(self) -> str | None:
        """What it was doing if it hangs. Then its stacks are in the lane's log, and its processes ended."""
        silent_s = self.vitals.look()
        if silent_s < self.patience_s:
            return None
        members = family(self.process.pid)
        dump_stacks(self.process.pid)
        end_groups([self.process], grace_s=0.0)  # it does not answer, so do not ask
        for member in members:  # such as Spark's Python workers, which lead their own groups
            with suppress(psutil.Error):
                member.kill()
        return f"hung: nothing done for {silent_s:.0f} s while {self.phase}"

    def crash(self) -> str | None:
        """The signal if a fault in native code ended it."""
        status = self.process.poll()
        if status is None or -status not in _CRASHES:
            return None
        return f"crashed with signal {-status} while {self.phase}"

    def take(self, event: Event) -> None:
        """Take note of one of its events."""
        self.vitals.made_progress()
        if event.kind == "phase" and not event.text.endswith(_RESTARTED):
            self.phase = event.text
        elif event.kind in ("trial_done", "trial_left") and event.trial:
            self.over.add(event.trial)
        elif event.kind == "trial_failed" and event.trial:
            self.failed[event.trial] = event.text

    def restart(self, fault: str, paths: RunPaths) -> None:
        """Start it once more in place of its ended process, and report that in its name."""
        assert self.start is not None
        end_groups([self.process])
        lane = paths.lane(self.lane.index)
        events = EventWriter(lane.events(self.branch), lane.phases(self.branch))
        events.emit(Event(at=time.time(), kind="phase", text=f"{fault}{_RESTARTED}"))
        events.close()
        self.process, self.phase, self.was_restarted = self.start(), "starting", True
        self.vitals = Vitals(self.process.pid)
        self.failed.clear()  # it tries unfinished trials again


def patience_s(config: RunConfig, branch: Branch, source: Source | None) -> float:
    """The seconds for which a worker may be silent."""
    if config.hang_after_s == 0:
        return math.inf
    seconds = config.hang_after_s
    if branch == "neural":  # the gang's own watcher must have time to name a hung rank first
        seconds = max(seconds, config.neural.rank_timeout_s + _GANG_FIRST_S)
    is_far = config.cluster.nodes > 1 or (source is not None and source.is_far)
    return seconds * (FAR if is_far else 1)


def start_lane(
    paths: RunPaths,
    plan: Plan,
    lane: LanePlan,
    config: RunConfig,
    *,
    scratch: Path,
    source: Source | None,
    environ: Mapping[str, str],
) -> Iterator[Worker]:
    """Start the workers of one lane that have work, each when it is asked for: the next may be refused."""
    folder = paths.lane(lane.index)
    folder.root.mkdir(parents=True, exist_ok=True)
    if lane.cuda_visible_devices:
        with suppress(OSError):  # then the driver translates again
            cuda_cache().mkdir(parents=True, exist_ok=True)
    write_json(folder.lane, lane)
    for branch in BRANCHES:
        specs = plan.of(lane.index, branch)
        prepares = prepares_table(paths, lane.index, branch)
        if not prepares and all(paths.trial(spec.name).done.exists() for spec in specs):
            continue
        options = [
            "--run", str(paths.root), "--lane", str(lane.index), "--branch", branch,
            "--parent", str(os.getpid()),
            *(["--source", source.model_dump_json()] if source else []),
        ]  # fmt: skip
        environment = partial(
            lane_environment, lane, branch, visible=plan.visible_devices(lane.index, branch), environ=environ,
            nodes=max((spec.nodes for spec in specs), default=1),
        )  # fmt: skip
        start = partial(_start, folder.log, lane, branch, scratch, options, environment)
        process = start()
        yield Worker(
            lane=lane,
            branch=branch,
            process=process,
            reader=EventReader(folder.events(branch)),
            prepares=prepares,
            vitals=Vitals(process.pid),
            patience_s=patience_s(config, branch, source),
            start=start,
        )


def _start(
    log: Path,
    lane: LanePlan,
    branch: Branch,
    scratch: Path,
    options: Sequence[str],
    environment: Callable[[Path], dict[str, str]],
) -> subprocess.Popen[bytes]:
    own = Path(tempfile.mkdtemp(prefix=f"lane-{lane.index}-{branch}-", dir=scratch))
    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "sparkgpu.lanes.worker", "--scratch", str(own), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(own),
                start_new_session=True,  # Ctrl-C reaches only the parent; the whole group can be ended
            )
    except OSError as error:
        fault = f"lane {lane.index}: its {branch} worker cannot be started ({error})."
        raise fault_of_machine(error) or TrialError(fault) from error


def lane_environment(
    lane: LanePlan,
    branch: Branch,
    scratch: Path,
    *,
    visible: str,
    environ: Mapping[str, str],
    nodes: int = 1,
) -> dict[str, str]:
    """The environment of a worker, complete before its start, since CUDA and OpenMP read it when they load.

    `visible` is its CUDA_VISIBLE_DEVICES: its lane's device, or those of a gang. `nodes` is the number of
    machines that its networks train on.
    """
    threads = str(lane.tree_threads if branch == "trees" else lane.neural_threads)
    return {
        **outside_environment(environ),
        **(_NEURAL_ENVIRONMENT if branch == "neural" else {}),
        **(_ONE_MACHINE if branch == "neural" and nodes == 1 else {}),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible,
        # What the driver translated for a newer card. Its usual place is lost in containers, and too small.
        "CUDA_CACHE_PATH": environ.get("CUDA_CACHE_PATH", str(cuda_cache())),
        "CUDA_CACHE_MAXSIZE": environ.get("CUDA_CACHE_MAXSIZE", str(4 * 2**30)),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": "1",
        # A waiting thread must sleep, not spin, since the lane's other branch needs the core.
        "OMP_WAIT_POLICY": "PASSIVE",
        # It spins for about 20 microseconds first: a network's steps have many short waits, and sleeping in
        # each of them costs a third of the speed on two threads.
        "GOMP_SPINCOUNT": "5000",
        "TMPDIR": str(scratch),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def outside_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that an outer Spark, Slurm step or notebook set for itself."""
    inherited = {key: value for key, value in environ.items() if key not in _NOT_INHERITED}
    inherited["LC_ALL"] = "C.UTF-8"  # the letters that Java knows in paths, and the language of errors
    if "PYTHONPATH" in environ:
        inherited["PYTHONPATH"] = _without_spark(environ["PYTHONPATH"], environ.get("SPARK_HOME"))
    return inherited


def _without_spark(python_path: str, spark_home: str | None) -> str:
    own = f"{spark_home.rstrip('/')}/python" if spark_home else None
    entries = python_path.split(os.pathsep)
    kept = (entry for entry in entries if entry.rstrip("/") != own and not _SPARK_PACKAGES.search(entry))
    return os.pathsep.join(kept)
