"""Runs one network trial as a gang of ranks in the executors of a Spark application.

Spark's TorchDistributor starts a torchrun in each slot of a barrier stage. It reports little about failures
(a failed rank can even look like a good one). So each rank writes its own marker and log into the run
directory, and only those count here.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.core.errors import DeviceError, TrialError
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.neural.launchers.gang_files import (
    SMALLER,
    attempts,
    finished_record,
    loss,
    rank_arguments,
    refusal,
    write_trial,
)
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


class Barrier:
    """A launcher (`sparkgpu.neural.launchers.base.Launcher`) in the slots of a barrier stage."""

    def __init__(self, distributor: TorchDistributor) -> None:
        self._distributor = distributor

    def run(self, trial: NeuralTrial) -> FitRecord:
        """Raises `DeviceError`, too, where the slots are too few."""
        paths = trial.paths
        paths.root.mkdir(parents=True, exist_ok=True)
        paths.rank_logs.mkdir(exist_ok=True)
        shutil.rmtree(paths.gang, ignore_errors=True)  # left by a run that was stopped
        losses: list[str] = []
        while True:
            lost, failure = self._attempt(trial)
            if lost is None:
                break
            losses.append(lost)
            if len(losses) > trial.parameters.max_restarts:
                number = "1 attempt" if len(losses) == 1 else f"{len(losses)} attempts"
                raise TrialError(
                    f"{trial.name}: {lost}. Given up after {number}; the ranks' logs are in "
                    f"{paths.rank_logs}."
                ) from failure
            time.sleep(RESTART_S)
        record = finished_record(paths.gang, losses)
        shutil.rmtree(paths.gang)
        return record

    def _attempt(self, trial: NeuralTrial) -> tuple[str | None, Exception | None]:
        """Train once. Returns which rank was lost and Spark's error; None if all ranks are done."""
        num_ranks = self._distributor.num_processes
        folder, logs = trial.paths.gang, trial.paths.rank_logs
        # What an attempt found out about the memory is for the next one.
        smaller = folder / SMALLER
        kept = smaller.read_text(encoding="utf-8") if smaller.exists() else None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if kept is not None:
            write_text(smaller, kept)
        write_trial(trial, folder)
        arguments = [*rank_arguments(trial, folder), "--meet", "agent"]
        failure: Exception | None = None
        try:
            self._distributor.run(run_rank, arguments, str(logs))
        except Exception as error:  # from py4j, from Spark, or from unpickling a result that never came
            failure = error
        if failure is not None and _TOO_FEW_SLOTS in str(failure):
            raise DeviceError(
                f"{trial.name}: {num_ranks} ranks need as many slots, and the application has fewer. Give it "
                "more cores (or GPUs), or spread the network over fewer ranks with spark.cores.max."
            )
        if refused := refusal(folder):
            raise refused
        if found := attempts(folder):
            return loss(found[-1], num_ranks, logs), failure
        return f"none of {num_ranks} ranks started ({trial.run.lane(0).log} says more)", failure


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
