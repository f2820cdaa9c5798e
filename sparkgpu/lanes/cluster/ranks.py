"""Runs one network trial as a gang of ranks in the executors of a Spark application.

Spark's TorchDistributor starts a torchrun in each slot of a barrier stage. It reports little about failures
(a failed rank can even look like a good one). So each rank writes its own marker and log into the run
directory, and only those count here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.rundir.events import Event
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.neural.launchers.gang import rank_arguments, train_in_attempts
from sparkgpu.trials.engine import NeuralTrial

if TYPE_CHECKING:
    from pyspark.ml.torch.distributor import TorchDistributor

RESTART_S = 5.0
"""Pause between two attempts. A lost executor ends the whole application, and is noticed within this time."""

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
        where=f"{num_ranks} ranks in the slots of the application",
        pause_s=RESTART_S,
    )


def run_rank(arguments: Sequence[str], logs: str) -> None:
    """Run one rank; torchrun calls this in an executor. The rank's process ends with this one."""
    rank, gpus = os.environ["RANK"], os.environ.get("CUDA_VISIBLE_DEVICES") or "none"
    log = Path(logs) / f"rank-{rank}.log"
    command = [sys.executable, *arguments, "--parent", str(os.getpid())]
    with log.open("ab") as file:
        place = f"rank {rank} on {socket.gethostname()}, in {Path.cwd()}, GPUs {gpus}\n"
        file.write(place.encode())
        file.flush()
        subprocess.run(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, check=True)
