"""Follows a run on a Spark cluster: starts the application's driver, and again when an executor is lost.

Finished work is kept, a network continues from its checkpoint, and trees start again on a new H2O cloud over
the remaining executors.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.registry.engines import BRANCHES, Branch
from sparkgpu.core.errors import ExecutorLostError, SparkgpuError, TrialError, error_of_kind
from sparkgpu.core.host.processes import end_groups
from sparkgpu.core.host.watchdog import Vitals, dump_stacks
from sparkgpu.core.plan.plan import Plan, prepares_table
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import Event, EventReader
from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.paths import RunPaths, clear_unfinished
from sparkgpu.core.table.source import Source
from sparkgpu.lanes.cluster.settings import ClusterSettings
from sparkgpu.lanes.launch import FAR, Worker, outside_environment
from sparkgpu.lanes.worker_supervisor import Outcome, WorkerSupervisor, wait_closed

_POLL_S = 0.1
_CLOSING_S = 15.0
_MOST_STARTS = 2
_SETTLED_S = 10.0  # without another executor, at the second start: a stopped one is killed after that time


@dataclass(kw_only=True)
class DriverSupervisor:
    """The Spark application of a run; `plan` is its layout over the executors that it got.

    `wanted` is the file with what the driver asks of the cluster.
    """

    paths: RunPaths
    master: str
    patience_s: float
    command: list[str]
    environment: dict[str, str]
    wanted: Path
    plan: Plan = field(init=False)
    drivers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def processes(self) -> dict[int, str]:
        """The driver's process id while it is alive."""
        return {driver.pid: "driver" for driver in self.drivers if driver.poll() is None}

    def follow(
        self,
        on_event: Callable[[int, Branch, Event], None],
        on_table: Callable[[], None],
        beside: Iterator[None],
    ) -> Outcome:
        """As `WorkerSupervisor.follow`; `on_table` is called again after a second start, with its plan."""
        lost: list[str] = []
        while True:
            try:
                return self._crew().follow(on_event, on_table, beside)
            except ExecutorLostError as error:
                lost.append(str(error))
            end_groups(self.drivers)
            if len(lost) == _MOST_STARTS:
                return self._given_up("; then ".join(lost))
            on_event(0, "trees", Event(at=time.time(), kind="phase", text=f"{lost[-1]}; once more"))
            clear_unfinished(self.paths)
            # With one lost there may be fewer than before: take those that come.
            fewer = {"executors": len(self.plan.lanes), "settled_s": _SETTLED_S}
            write_json(self.wanted, {**read_json(self.wanted), **fewer})
            try:
                self._start()
            except SparkgpuError as error:
                write_json(self.paths.plan, self.plan)  # what finished is scored and reported by it
                return self._given_up(f"{lost[-1]}; then {error}")

    @contextmanager
    def started(self) -> Iterator[None]:
        """With the driver running; every process on this machine ends with the block, and so do executors."""
        try:
            self._start()
            yield
            wait_closed(self.drivers, _CLOSING_S)  # give the driver time to stop Spark cleanly
        finally:
            end_groups(self.drivers)

    def _start(self) -> None:
        """Start a driver and wait for its plan. Raises the driver's error if it ends without one."""
        self.paths.plan.unlink(missing_ok=True)
        lane = self.paths.lane(0)
        lane.root.mkdir(parents=True, exist_ok=True)
        scratch = Path(self.environment["TMPDIR"])
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        with lane.log.open("ab") as log:
            driver = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,  # Ctrl-C reaches only the parent, and the whole group can be ended
            )
        self.drivers = [driver]
        vitals = Vitals(driver.pid)
        while not self.paths.plan.exists():
            if vitals.look() >= self.patience_s:
                dump_stacks(driver.pid)
                raise TrialError(
                    f"{self.master}: the driver hung before it had executors, nothing done for "
                    f"{vitals.idle_s:.0f} s; the stacks of its threads are in {lane.log}."
                )
            if driver.poll() is not None:
                if not lane.error("trees").exists():
                    lines = lane.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                    raise TrialError(
                        f"{self.master}: the driver ended with status {driver.returncode} before it had "
                        f"executors; its last output: {lines[-1:]}."
                    )
                found = read_json(lane.error("trees"))
                raise error_of_kind(found["kind"], found["message"])
            time.sleep(_POLL_S)
        self.plan = Plan.model_validate(read_json(self.paths.plan))

    def _crew(self) -> WorkerSupervisor:
        (driver,) = self.drivers
        vitals = Vitals(driver.pid)
        workers = [
            Worker(
                lane=lane,
                branch=branch,
                process=driver,
                reader=EventReader(self.paths.lane(lane.index).events(branch)),
                prepares=prepares_table(self.paths, lane.index, branch),
                vitals=vitals,
                patience_s=self.patience_s,
            )
            for lane in self.plan.lanes
            for branch in BRANCHES
            if prepares_table(self.paths, lane.index, branch) or self._left(self.plan.of(lane.index, branch))
        ]
        return WorkerSupervisor(self.paths, self.plan, workers)

    def _left(self, trials: Iterable[TrialSpec]) -> list[str]:
        return [spec.name for spec in trials if not self.paths.trial(spec.name).done.exists()]

    def _given_up(self, reason: str) -> Outcome:
        if not self.paths.schema.exists():
            raise TrialError(f"{reason}. Nothing had been trained yet.")
        return Outcome(failed=dict.fromkeys(self._left(self.plan.trials), reason))


@contextmanager
def supervised_driver(
    paths: RunPaths,
    settings: ClusterSettings,
    config: RunConfig,
    *,
    scratch: Path,
    source: Source,
    began: float,
    dry_run: bool,
    environ: Mapping[str, str],
) -> Iterator[DriverSupervisor]:
    """Start the application of a run that `began` then, in seconds since the epoch.

    All its processes on this machine end with the block.

    Executors must see the source where it lies. Raises what the driver refuses.
    """
    own = scratch / "driver"
    # The scratch folder is private, and Spark settings can hold secrets.
    file = scratch / "cluster.json"
    write_json(file, {**asdict(settings), "executors": config.cluster.executors})
    # The configuration as asked for: values filled in since then fit only the executors of the first start.
    asked = scratch / "run.toml"
    shutil.copy(paths.config, asked)
    shared = paths.root / "exchange"
    shared.mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "sparkgpu.lanes.cluster.driver", "--run", str(paths.root),
        "--config", str(asked), "--settings", str(file),
        "--scratch", str(own), "--shared", str(shared), "--source", source.model_dump_json(),
        "--began", str(began), "--parent", str(os.getpid()), *(["--plan-only"] if dry_run else []),
    ]  # fmt: skip
    supervisor = DriverSupervisor(
        paths=paths, master=settings.master, command=command, wanted=file,
        patience_s=config.hang_after_s * FAR or math.inf,
        environment={**outside_environment(environ), "TMPDIR": str(own), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        with supervisor.started():
            yield supervisor
    finally:
        shutil.rmtree(shared, ignore_errors=True)
