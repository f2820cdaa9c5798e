"""Runs one trial as a gang of ranks under torchrun's agent on this machine.

The agent (torch.distributed.elastic) starts the ranks of an attempt and ends all if one is lost. A watcher
beside it kills a rank that hangs, so that the agent notices. Ranks find each other through a file in the
run's scratch folder, so no port is open for that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.neural.launchers.gang import last_output, rank_arguments, train_in_attempts
from sparkgpu.neural.launchers.heartbeat import SLOW_WORK, STACK_SIGNAL, WAITING, Sign, rank_file, read_sign
from sparkgpu.trials.engine import NeuralTrial

_LOOK_EVERY_S = 0.1
_STACK_S = 2.0  # a living rank writes its stack within milliseconds
_RENDEZVOUS_S = 60


def train_locally(trial: NeuralTrial) -> FitRecord:
    """Train with a rank for each device of the trial's gang."""
    spec, logs = trial.spec, trial.paths.rank_logs
    # Otherwise the agent would open its own store to the network for the ranks.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"

    def attempt(folder: Path) -> str | None:
        launch = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=spec.num_ranks,
            run_id=folder.name,
            rdzv_backend="c10d",
            rdzv_endpoint=str(folder / "rendezvous"),
            rdzv_configs={"store_type": "file", "timeout": _RENDEZVOUS_S},
            local_addr="127.0.0.1",
            max_restarts=0,
            shutdown_timeout=5,
        )
        command = [*rank_arguments(trial, folder), "--output", str(logs), "--parent", str(os.getpid())]
        watcher = _Watcher(folder, logs, spec.num_ranks, trial.parameters.rank_timeout_s)
        watcher.start()
        try:
            elastic_launch(launch, sys.executable)(*command)
        except ChildFailedError:
            return watcher.hang  # what else may have happened is in the files of the ranks
        finally:
            watcher.stop()
        return None

    return train_in_attempts(
        trial,
        trial.scratch / f"gang-{trial.name}",
        attempt,
        num_ranks=spec.num_ranks,
        most_restarts=trial.parameters.max_restarts,
        where=f'neural.strategy = "{spec.strategy}" on {spec.num_ranks} ranks',
    )


class _Watcher(threading.Thread):
    """Watches the ranks of an attempt and kills one that hangs; `hang` then says which, and where it was."""

    def __init__(self, folder: Path, logs: Path, num_ranks: int, timeout_s: float) -> None:
        super().__init__(daemon=True)
        self.hang: str | None = None
        self._folder = folder
        self._logs = logs
        self._num_ranks = num_ranks
        self._timeout_s = timeout_s
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while self.hang is None and not self._ended.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        ranks = range(self._num_ranks)
        missing = [rank for rank in ranks if not rank_file(self._folder, rank, "done").exists()]
        signs = {rank: sign for rank in missing if (sign := read_sign(self._folder, rank)) is not None}
        now = time.monotonic()
        if not signs or any(now - sign.at < self._patience_s(sign) for sign in signs.values()):
            return
        rank, where = self._hung(signs)
        waited = now - signs[rank].at
        self.hang = (
            f"rank {rank} of {self._num_ranks} hung: nothing done for {waited:.0f} s, {where}"
            + last_output(self._logs, rank)
        )
        with suppress(ProcessLookupError):
            os.kill(signs[rank].process, signal.SIGKILL)

    def _patience_s(self, sign: Sign) -> float:
        return self._timeout_s if sign.is_training else SLOW_WORK * self._timeout_s

    def _hung(self, signs: Mapping[int, Sign]) -> tuple[int, str]:
        """The rank that does not wait for another one, and what it is doing."""
        stacks = {rank: rank_file(self._folder, rank, "stack") for rank in signs}
        sizes = {rank: stack.stat().st_size for rank, stack in stacks.items()}
        for sign in signs.values():
            with suppress(ProcessLookupError):
                os.kill(sign.process, STACK_SIGNAL)
        deadline = time.monotonic() + _STACK_S
        silent = set(signs)
        while silent and time.monotonic() < deadline:
            time.sleep(0.05)
            silent = {rank for rank in silent if stacks[rank].stat().st_size == sizes[rank]}
        if silent:
            return min(silent, key=lambda rank: signs[rank].beats), "and does not answer (stopped?)"
        tops = {rank: _top_frame(stack) for rank, stack in stacks.items()}
        busy = [rank for rank, top in tops.items() if not WAITING.search(top)]
        rank = min(busy or signs, key=lambda rank: signs[rank].beats)
        return rank, f"it is at {tops[rank]}"


def _top_frame(file: Path) -> str:
    """The position of the innermost Python function in the last stack."""
    text = file.read_text(encoding="utf-8", errors="replace")
    frames = text[text.rfind("(most recent call first)") :].splitlines()[1:]
    return frames[0].strip().removeprefix("File ") if frames else "an unknown place"
