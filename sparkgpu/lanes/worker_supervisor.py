"""Follows the workers of a run to their end, and leaves none behind.

A lane that dies is reported, and the others continue. A worker that hangs is ended and started once more.
Only a failed preparation of the table ends the whole run.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.registry.engines import BRANCHES, Branch
from sparkgpu.core.errors import ExecutorLostError, TrialError, error_of_kind
from sparkgpu.core.host.processes import end_groups
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.events import WAITING_FOR_NETWORK, WAITING_FOR_PROBE, WAITING_FOR_TREES, Event
from sparkgpu.core.rundir.files import read_json, remove_half_written, write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.source import Source
from sparkgpu.lanes.launch import Worker, start_lane

_POLL_S = 0.05
_CLOSING_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the trials ended: reasons of those that failed, and notes on trials."""

    failed: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)


class WorkerSupervisor:
    """The workers of a run, while they run."""

    def __init__(self, paths: RunPaths, plan: Plan, workers: list[Worker]) -> None:
        self._paths = paths
        self.plan = plan
        self._workers = workers
        self._notes: dict[str, str] = {}

    def processes(self) -> dict[int, str]:
        """The process ids of the living workers, named by lane and branch such as ``0/trees``."""
        return {
            worker.process.pid: f"{worker.lane.index}/{worker.branch}"
            for worker in self._workers
            if worker.process.poll() is None
        }

    def follow(
        self,
        on_event: Callable[[int, Branch, Event], None],
        on_table: Callable[[], None],
        beside: Iterator[None],
    ) -> Outcome:
        """Wait until every trial is done or failed, and pass on what the workers report.

        Calls `on_table` once the table exists; `beside` does a piece of other work between two looks. Workers
        may still be closing Spark when this returns. Raises the error with which the preparation of the table
        ended, or FileNotFoundError if the run's folder is gone.
        """
        running = list(self._workers)
        table_seen = False
        while any(self._undone(worker) for worker in running):
            ended = [worker for worker in running if worker.process.poll() is not None]
            self._paths.plan.stat()  # nothing may be written where somebody removed the run's folder
            for worker in running:  # after the check for ended workers, so that their last events are read
                for event in worker.reader.new():
                    worker.take(event)
                    on_event(worker.lane.index, worker.branch, event)
            if not table_seen and self._paths.schema.exists():
                table_seen = True
                on_table()
            for worker in tuple(running):
                if worker in ended:
                    fault = worker.crash()
                    if not (fault and self._undone(worker) and self._started_again(worker, fault)):
                        running.remove(worker)
                        self._settle(worker, table_seen)
                elif self._has_to_wait(worker, table_seen):
                    worker.vitals.made_progress()
                elif fault := worker.hang():
                    self._mend(worker, fault)
            next(beside, None)
            time.sleep(_POLL_S)
        failed = {name: reason for worker in self._workers for name, reason in worker.failed.items()}
        return Outcome(failed=failed, notes=self._notes)

    def _undone(self, worker: Worker) -> list[str]:
        names = [trial.name for trial in self.plan.of(worker.lane.index, worker.branch)]
        return [name for name in names if name not in worker.over | worker.failed.keys()]

    def _has_to_wait(self, worker: Worker, table_seen: bool) -> bool:
        """Whether its silence means nothing: it waits for another worker, which is watched instead."""
        if not table_seen and not worker.prepares:
            return worker.start is not None
        return worker.phase in (WAITING_FOR_TREES, WAITING_FOR_NETWORK, WAITING_FOR_PROBE)

    def _mend(self, worker: Worker, fault: str) -> None:
        """Start a worker that hung once more unless that was done before."""
        if not self._undone(worker):
            return  # its trials are done: it hung while it closed Spark and H2O
        lane = self._paths.lane(worker.lane.index)
        if worker.start is None:
            raise ExecutorLostError(f"the driver {fault}; the stacks of its threads are in {lane.log}")
        if not self._started_again(worker, fault):  # it is handled as a worker that has ended
            message = (
                f"lane {worker.lane.index}: the {worker.branch} worker failed 2 times, at last it {fault}; "
                f"the stacks of its threads are in {lane.log}."
            )
            write_json(lane.error(worker.branch), {"kind": TrialError.kind, "message": message})

    def _started_again(self, worker: Worker, fault: str) -> bool:
        """Start a worker once more after a fault, unless that was done before; whether it was done."""
        if worker.start is None or worker.was_restarted:
            return False
        for spec in self.plan.of(worker.lane.index, worker.branch):
            trial = self._paths.trial(spec.name)
            if not trial.done.exists():
                trial.error.unlink(missing_ok=True)
                remove_half_written(trial.root)
                what = fault.replace("hung: ", "hung, ")
                self._notes[spec.name] = f"its worker {what}, and was started once more"
        worker.restart(fault, self._paths)
        return True

    def _settle(self, worker: Worker, table_is_there: bool) -> None:
        end_groups([worker.process])
        write_text(self._paths.lane(worker.lane.index).ended(worker.branch), "")
        left = [name for name in self._undone(worker) if not self._paths.trial(name).done.exists()]
        for name in left:
            remove_half_written(self._paths.trial(name).root)
        if not left and (table_is_there or not worker.prepares):
            return
        lane = self._paths.lane(worker.lane.index)
        file = lane.error(worker.branch)
        if not file.exists():
            ended, kind = f"{_ending(worker.process.returncode)}; see {lane.log}", TrialError.kind
            message = f"lane {worker.lane.index}: the {worker.branch} worker {ended}."
            if worker.start is None and worker.process.returncode < 0:  # as if an executor was lost
                message, kind = f"the driver {ended}", ExecutorLostError.kind
            write_json(file, {"kind": kind, "message": message})
        found = read_json(file)
        if (worker.prepares and not table_is_there) or found["kind"] == ExecutorLostError.kind:
            raise error_of_kind(found["kind"], found["message"])
        write_json(lane.root / "error.json", {"branch": worker.branch, **found})
        for name in left:
            worker.failed[name] = found["message"]


def _ending(status: int) -> str:
    if status < 0:
        return f"was killed by signal {-status}" + (" (out of memory?)" if status == -9 else "")
    return f"ended with status {status} without a reason"


@contextmanager
def supervised_workers(
    paths: RunPaths,
    plan: Plan,
    config: RunConfig,
    *,
    scratch: Path,
    source: Source | None,
    environ: Mapping[str, str],
    only: int | None = None,
) -> Iterator[WorkerSupervisor]:
    """Start the workers of every lane, or of lane `only`; they and their descendants end with the block.

    `source` is None if the table exists.
    """
    workers: list[Worker] = []
    try:
        for lane in plan.lanes if only is None else (plan.lanes[only],):
            own = paths.lane(lane.index)
            for branch in BRANCHES:  # left by a run that this one resumes
                own.ended(branch).unlink(missing_ok=True)
            own.network_waits.unlink(missing_ok=True)
            idle = set(BRANCHES)
            for worker in start_lane(
                paths, plan, lane, config, scratch=scratch, source=source, environ=environ
            ):
                workers.append(worker)  # at once, so that it ends even if the next one cannot be started
                idle.remove(worker.branch)
            for branch in idle:
                write_text(own.ended(branch), "")
        yield WorkerSupervisor(paths, plan, workers)
        # Give workers whose trials are over time to close Spark and H2O cleanly.
        wait_closed([worker.process for worker in workers], _CLOSING_S)
    finally:
        end_groups([worker.process for worker in workers])


def wait_closed(processes: Sequence[subprocess.Popen[bytes]], within_s: float) -> None:
    """Wait until these processes have ended, at most `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
