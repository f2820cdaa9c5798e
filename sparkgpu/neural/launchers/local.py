"""Runs one trial as a gang of ranks under torchrun's agent, and names the rank at fault if one is lost.

The agent (torch.distributed.elastic) starts the ranks. If one is lost, it ends all and starts them again from
the last checkpoint, up to `max_restarts` times. A watcher beside it kills a rank that hangs, so that the
agent notices. Ranks find each other through a file in the run's scratch folder, so no port is open for that.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.neural.launchers.gang_files import (
    blame,
    finished_record,
    is_done,
    rank_arguments,
    refusal,
    write_trial,
)
from sparkgpu.neural.launchers.heartbeat import STACK_SIGNAL, TRAINING, Sign, read_sign, stack_file
from sparkgpu.trials.engine import NeuralTrial

_LOOK_EVERY_S = 0.1
_STACK_S = 2.0  # a living rank writes its stack within milliseconds
_RENDEZVOUS_S = 60
_WHOLE_TABLE = 10  # reading and predicting may take this many times as long as a step
_WAITING = re.compile(r"[/\\]torch[/\\](distributed|autograd|nn[/\\]parallel)[/\\]|checkpoint")


class Local:
    """A launcher (`sparkgpu.neural.launchers.base.Launcher`) on this machine."""

    def run(self, trial: NeuralTrial) -> FitRecord:
        spec, config, logs = trial.spec, trial.parameters, trial.paths.rank_logs
        num_ranks = len(spec.gang)
        folder = trial.scratch / f"gang-{trial.name}"
        folder.mkdir()
        write_trial(trial, folder)
        logs.mkdir(parents=True, exist_ok=True)
        # Otherwise the agent would open its own store to the network for the ranks.
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        launch = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=num_ranks,
            run_id=trial.name,
            rdzv_backend="c10d",
            rdzv_endpoint=str(folder / "rendezvous"),
            rdzv_configs={"store_type": "file", "timeout": _RENDEZVOUS_S},
            local_addr="127.0.0.1",
            max_restarts=config.max_restarts,
            logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
            shutdown_timeout=5,
        )
        command = [*rank_arguments(trial, folder), "--parent", str(os.getpid())]
        watcher = _Watcher(folder, logs, num_ranks, config.rank_timeout_s)
        watcher.start()
        try:
            elastic_launch(launch, sys.executable)(*command)
        except ChildFailedError as error:
            if refused := refusal(folder):
                raise refused from None
            failure = error.get_first_failure()[1]
            watcher.stop()
            attempts = "1 attempt" if config.max_restarts == 0 else f"{config.max_restarts + 1} attempts"
            lost = watcher.losses[-1] if watcher.losses else f"a rank ended with status {failure.exitcode}"
            raise TrialError(
                f'{trial.name}: {lost}. Given up after {attempts} with neural.strategy = "{spec.strategy}" '
                f"on {num_ranks} ranks; their logs are in {logs}."
            ) from None
        finally:
            watcher.stop()
        if refused := refusal(folder):
            raise refused
        return finished_record(folder, watcher.losses)


class _Watcher(threading.Thread):
    """Watches the ranks of each attempt in turn; `losses` tells how each attempt was lost."""

    def __init__(self, folder: Path, logs: Path, num_ranks: int, timeout_s: float) -> None:
        super().__init__(daemon=True)
        self.losses: list[str] = []
        self._folder = folder
        self._logs = logs
        self._num_ranks = num_ranks
        self._timeout_s = timeout_s
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        lost: int | None = None  # the number of the attempt already known to be lost
        while not self._ended.wait(_LOOK_EVERY_S):
            attempt = self._attempt()
            if attempt is None or attempt == lost:
                continue
            if self._look(attempt):
                lost = attempt
        attempt = self._attempt()
        if attempt is not None and attempt != lost:
            self._look(attempt)

    def _attempt(self) -> int | None:
        """The latest attempt that at least one rank has begun."""
        numbers = [int(path.name.partition("-")[2]) for path in self._folder.glob("attempt-*")]
        return max(numbers, default=None)

    def _look(self, attempt: int) -> bool:
        """Whether the attempt is lost. Kills a rank that hangs."""
        folder = self._folder / f"attempt-{attempt}"
        signs = [read_sign(folder, rank) for rank in range(self._num_ranks)]
        missing = [rank for rank in range(self._num_ranks) if not is_done(folder, rank)]
        gone = [rank for rank in missing if (sign := signs[rank]) is None or not _alive(sign)]
        began = any(signs[rank] is not None for rank in gone)
        if began and not (self._folder / "refused.json").exists():
            # The agent may already have asked other ranks to end, and their numbers may be lower.
            self.losses.append(
                blame(folder, gone, self._num_ranks, lambda rank: self._last_output(attempt, rank))
            )
            return True
        now = time.monotonic()
        living = {rank: sign for rank in missing if (sign := signs[rank]) is not None}
        if not living or any(now - sign.at < self._patience_s(sign) for sign in living.values()):
            return False
        rank, where = self._hung(folder, living)
        waited = now - living[rank].at
        self.losses.append(
            f"rank {rank} of {self._num_ranks} hung: nothing done for {waited:.0f} s, {where}"
            + self._last_output(attempt, rank)
        )
        with suppress(ProcessLookupError):
            os.kill(living[rank].process, signal.SIGKILL)
        return True

    def _patience_s(self, sign: Sign) -> float:
        """The longest time between two signs of life; reading and saving may take longer than a step."""
        return self._timeout_s if sign.state == TRAINING else _WHOLE_TABLE * self._timeout_s

    def _hung(self, folder: Path, signs: Mapping[int, Sign]) -> tuple[int, str]:
        """The rank that does not wait for another one, and what it is doing."""
        sizes = {rank: stack_file(folder, rank).stat().st_size for rank in signs}
        for sign in signs.values():
            with suppress(ProcessLookupError):
                os.kill(sign.process, STACK_SIGNAL)
        deadline = time.monotonic() + _STACK_S
        silent = set(signs)
        while silent and time.monotonic() < deadline:
            time.sleep(0.05)
            silent = {rank for rank in silent if stack_file(folder, rank).stat().st_size == sizes[rank]}
        if silent:
            return min(silent, key=lambda rank: signs[rank].beats), "and does not answer (stopped?)"
        tops = {rank: _top_frame(stack_file(folder, rank)) for rank in signs}
        busy = [rank for rank, top in tops.items() if not _WAITING.search(top)]
        rank = min(busy or signs, key=lambda rank: signs[rank].beats)
        return rank, f"it is at {tops[rank]}"

    def _last_output(self, attempt: int, rank: int) -> str:
        """The last line that a rank wrote, if there is one."""
        for name in ("stderr.log", "stdout.log"):
            for file in self._logs.glob(f"*/attempt_{attempt}/{rank}/{name}"):
                lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                if lines:
                    return f"; its last output: {lines[-1].strip()!r}"
        return "; it wrote nothing"


def _alive(sign: Sign) -> bool:
    try:
        return psutil.Process(sign.process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _top_frame(file: Path) -> str:
    """The position of the innermost Python function in the last stack."""
    text = file.read_text(encoding="utf-8", errors="replace")
    frames = text[text.rfind("(most recent call first)") :].splitlines()[1:]
    return frames[0].strip().removeprefix("File ") if frames else "an unknown place"
