"""Lanes on the executors of a Spark application: one barrier task in each holds a lane's two workers.

The workers are the same as on one machine: each lane has its own Spark, H2O and network on the executor's
device. They write to the run directory, which all machines share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import DeviceError, TrialError
from sparkgpu.core.host.devices import find_machine
from sparkgpu.core.host.processes import end_groups
from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
from sparkgpu.core.plan.plan import LanePlan, Plan, heap_bytes
from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.lanes.crew import ending
from sparkgpu.lanes.launch import Worker, start_lane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.2


def run_lanes(session: SparkSession, paths: RunPaths, hosts: Sequence[str]) -> bool:
    """Run each lane of the plan on an executor until its trials end. Returns whether all are done.

    `hosts` are the hosts of the lanes' executors. Raises `DeviceError` if Spark puts two lanes on one
    executor.
    """
    count = len(hosts)
    rows = session.sparkContext.parallelize(range(count), count)
    answers = rows.barrier().mapPartitions(_task(str(paths.root), hosts)).collect()
    if None in answers:
        raise DeviceError(
            f'cluster.lanes = "executors": Spark put several of the {count} lanes on one executor. Set '
            "spark.task.cpus to the number of cores of an executor."
        )
    return all(answers)


def _task(root: str, hosts: Sequence[str]) -> Callable[[Iterable[int]], Iterator[bool | None]]:
    def task(rows: Iterable[int]) -> Iterator[bool | None]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        places = [info.address for info in context.getTaskInfos()]
        if len(set(places)) < len(places):
            yield None
            return
        # A task knows its machine but not its executor's id; executors on one machine are alike.
        lanes = sorted(range(len(hosts)), key=lambda index: (hosts[index], index))
        lane = lanes[sorted(places).index(places[context.partitionId()])]
        gpus = context.resources().get("gpu")
        yield _run_lane(RunPaths(root=Path(root)), lane, gpus.addresses if gpus else [])

    return task


def _run_lane(paths: RunPaths, index: int, gpus: list[str]) -> bool:
    """Run one lane on this machine. Returns whether all its trials are done."""
    plan = Plan.model_validate(read_json(paths.plan))
    config = config_io.load(file=paths.config)
    hosts = [lane.device_name.rpartition(" ")[2] for lane in plan.lanes]
    with reserved_ports(1) as ports, scratch_folder() as scratch:
        lane = plan.lanes[index].model_copy(
            update={
                "heap_bytes": heap_bytes(find_machine(), hosts.count(hosts[index])),
                "port_base": ports[0],
                "cuda_visible_devices": ",".join(gpus),
            }
        )
        workers: list[Worker] = []
        try:
            workers = start_lane(
                paths, plan, lane, config, scratch=scratch, source=None, environ=os.environ,
                visible=lambda _: ",".join(gpus),
            )  # fmt: skip
            while any(worker.process.poll() is None for worker in workers):
                for worker in workers:
                    _look_after(paths, lane, worker)
                time.sleep(_POLL_S)
        finally:
            end_groups([worker.process for worker in workers])
    for worker in workers:
        _explain(paths, lane, worker)
    return all(worker.process.returncode == 0 for worker in workers)


def _look_after(paths: RunPaths, lane: LanePlan, worker: Worker) -> None:
    """End a worker that hangs; the first time, start it again."""
    for event in worker.reader.new():
        worker.take(event)
    if worker.process.poll() is not None or not worker.look():
        return
    worker.end_hung()
    if worker.may_restart:
        worker.say_restarted(paths)
        worker.restart()
    else:
        write_json(
            paths.lane(lane.index).error(worker.branch),
            {"kind": TrialError.kind, "message": worker.given_up(paths)},
        )


def _explain(paths: RunPaths, lane: LanePlan, worker: Worker) -> None:
    """Write the reason of a failure if the worker could not write it."""
    file = paths.lane(lane.index).error(worker.branch)
    status = worker.process.returncode
    if status not in (0, 5) and not file.exists():
        message = f"lane {lane.index}: the {worker.branch} worker {ending(status)} on {lane.device_name}."
        write_json(file, {"kind": "trial", "message": message})
