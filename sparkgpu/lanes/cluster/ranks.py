"""Runs one trial as a gang of ranks in the executors of a Spark application.

For a network Spark's TorchDistributor starts a torchrun in each slot of a barrier stage. It reports little
about failures (a failed rank can even look like a good one). So each rank writes its own marker and log into
the run directory, and only those count here. Other engines have ranks of the same kind: a booster that can
be spread one in each slot, the rest a single one.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.rundir.events import Event
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.launchers.gang import rank_arguments, train_in_attempts
from sparkgpu.trials.engine import NeuralTrial, Trial

if TYPE_CHECKING:
    from pyspark.ml.torch.distributor import TorchDistributor
    from pyspark.sql import SparkSession

RESTART_S = 5.0
"""Pause between two attempts. A lost executor ends the whole application, and is noticed within this time."""

_MOST_RESTARTS = 2
_LEAST_ROWS = 10_000
_TOO_FEW_SLOTS = "SPARK-24819"  # Spark's code for a barrier stage that does not fit


def make_distributor(num_ranks: int, *, use_gpu: bool) -> TorchDistributor:
    """A distributor for `num_ranks` slots; call this in the thread that owns the session."""
    from pyspark.ml.torch import distributor

    # The original listens on every interface, without a login, for the output of ranks. Ours print to files.
    distributor.LogStreamingServer = _NoServer  # type: ignore[attr-defined]
    return distributor.TorchDistributor(num_processes=num_ranks, local_mode=False, use_gpu=use_gpu)


class _NoServer:
    """Replaces TorchDistributor's log server; port -1 means that there is none."""

    port = -1

    def start(self, spark_host_address: str = "") -> None:
        """Opens nothing."""

    def shutdown(self) -> None:
        """Nothing was opened."""


def train_in_slots(distributor: TorchDistributor, trial: NeuralTrial) -> FitRecord:
    """Train with a rank in each slot of a barrier stage, as `train_in_attempts` does.

    Raises `DeviceError`, too, where the slots are too few.
    """
    # The leading rank reports the seconds.
    trial.events.emit(Event(at=time.time(), kind="phase", text="starting the ranks", trial=trial.name))
    num_ranks, logs = distributor.num_processes, trial.paths.rank_logs

    def attempt(folder: Path) -> None:
        try:
            distributor.run(run_rank, [*rank_arguments(trial, folder), "--meet", "agent"], str(logs))
        except Exception as error:  # from py4j, from Spark, or from unpickling a result that never came
            if _TOO_FEW_SLOTS in str(error):
                raise DeviceError(
                    f"{trial.name}: {num_ranks} ranks need as many slots, and the application has fewer. "
                    "Give it more cores (or GPUs), or spread the network over fewer ranks with "
                    "spark.cores.max."
                ) from None
            traceback.print_exc()

    return train_in_attempts(
        trial,
        trial.paths.gang,
        attempt,
        num_ranks=num_ranks,
        most_restarts=trial.parameters.max_restarts,
        where=f"{num_ranks} ranks in the slots of the application",
        pause_s=RESTART_S,
    )


def num_tree_ranks(slots: int, schema: TableSchema) -> int:
    """Over how many slots a booster is spread: its ranks wait for each other in each level of a tree."""
    return max(1, min(slots, schema.splits["train"] // _LEAST_ROWS))


def train_by_engine(session: SparkSession, num_ranks: int, trial: Trial[Any]) -> FitRecord:
    """Train a trial of another engine than torch with `num_ranks` ranks, each in a slot.

    A single one has all cores of its executor, since trials take turns.
    """
    context, logs = session.sparkContext, trial.paths.rank_logs
    threads = trial.lane.threads if num_ranks == 1 else trial.lane.neural_threads
    lane = trial.lane.model_copy(update={"tree_threads": threads, "neural_threads": threads})

    def attempt(folder: Path) -> None:
        own = ["-m", "sparkgpu.lanes.cluster.engine_rank", "--run-dir", str(trial.run.root)]
        meets: AbstractContextManager[object] = nullcontext()
        if num_ranks > 1:
            from sparkgpu.trees.xgboost_ranks import meeting

            meets = meeting(str(context.getConf().get("spark.driver.host")), num_ranks)
        try:
            with meets as place:
                told = [*own, "--attempt", str(folder), "--place", json.dumps(place)]
                slots = context.parallelize(range(num_ranks), num_ranks).barrier()
                slots.mapPartitions(_engine_rank(told, str(logs))).collect()
        except Exception:  # from py4j or from Spark: what happened is in the files of the ranks
            traceback.print_exc()

    with trial.events.phase("training", trial.name):
        return train_in_attempts(
            replace(trial, lane=lane),
            trial.scratch / f"gang-{trial.name}",
            attempt,
            num_ranks=num_ranks,
            most_restarts=_MOST_RESTARTS,
            where=f"{num_ranks} ranks in the slots of the application",
            pause_s=RESTART_S,
        )


def _engine_rank(arguments: Sequence[str], logs: str) -> Callable[[Iterable[int]], Iterator[None]]:
    """The work of a task: one rank, on the GPU that Spark gave the task."""

    def task(rows: Iterable[int]) -> Iterator[None]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        rank, gpus = str(context.partitionId()), context.resources().get("gpu")
        os.environ |= {"RANK": rank, "CUDA_VISIBLE_DEVICES": ",".join(gpus.addresses) if gpus else ""}
        run_rank([*arguments, "--rank", rank], logs)
        yield from ()

    return task


def run_rank(arguments: Sequence[str], logs: str) -> None:
    """Run one rank in an executor, where torchrun or a task calls this. Its process ends with this one."""
    rank, gpus = os.environ["RANK"], os.environ.get("CUDA_VISIBLE_DEVICES") or "none"
    log = Path(logs) / f"rank-{rank}.log"
    command = [sys.executable, *arguments, "--parent", str(os.getpid())]
    with log.open("ab") as file:
        place = f"rank {rank} on {socket.gethostname()}, in {Path.cwd()}, GPUs {gpus}\n"
        file.write(place.encode())
        file.flush()
        subprocess.run(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, check=True)
