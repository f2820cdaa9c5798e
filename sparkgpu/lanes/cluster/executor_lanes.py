"""Lanes on the executors of a Spark application: one barrier task in each holds a lane's two workers.

The workers are the same as on one machine: each lane has its own Spark, H2O and network on the executor's
device. They write to the run directory, which all machines share.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.devices import find_machine
from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
from sparkgpu.core.plan.make_plan import heap_bytes
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.lanes.worker_supervisor import supervised_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_lanes(session: SparkSession, paths: RunPaths, hosts: Sequence[str]) -> bool:
    """Run each lane of the plan on the executor of its host until its trials end; whether all are done.

    Raises `DeviceError` if Spark puts two lanes on one executor.
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
    plan = Plan.model_validate(read_json(paths.plan))
    hosts = [lane.device_name.rpartition(" ")[2] for lane in plan.lanes]
    with reserved_ports(1) as ports, scratch_folder() as scratch:
        lanes = list(plan.lanes)
        lanes[index] = lanes[index].model_copy(
            update={
                "heap_bytes": (
                    heap_bytes(find_machine(), hosts.count(hosts[index]))
                    if lanes[index].context != "none"
                    else 0
                ),
                "port_base": ports[0],
                "cuda_visible_devices": ",".join(gpus),
            }
        )
        plan = plan.model_copy(update={"lanes": tuple(lanes)})
        with supervised_workers(
            paths, plan, config_io.load(file=paths.config), scratch=scratch, source=None, environ=os.environ,
            only=index,
        ) as supervisor:  # fmt: skip
            # The run's own process reads the same events, and shows them.
            outcome = supervisor.follow(lambda lane, branch, event: None, lambda: None, iter(()))
    return not outcome.failed
