"""A gang of ranks: attempts until all of them are done, and the files in which they tell what happened.

A launcher starts the ranks of one attempt and waits for their end. If one was lost, all start again from the
last checkpoint. No launcher is trusted to know why: torchrun's agents see their own machine alone, and Spark
may take a failed rank for a good one. So the ranks leave files in the folder of their attempt, which all
machines share. For rank N, ``rank-N.done`` means success, ``rank-N.error.json`` gives the error, and
``rank-N.ended`` holds the stack of a rank that was asked to end. A rank that began and left none of these
files was killed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkgpu.core.config.parameters import Parameters
from sparkgpu.core.errors import TrialError, error_of_kind
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.files import Record, read_json, read_record, write_json
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.words import counted
from sparkgpu.neural.launchers.heartbeat import rank_file, read_sign
from sparkgpu.trials.engine import NeuralTrial, Trial

_TRIAL, RECORD, REFUSED = "trial.json", "record.json", "refused.json"
SMALLER = "smaller.json"
"""The micro-batches for the next attempt, written by a rank that ran out of memory."""


class GangTrial(Record):
    """What the ranks are told of their trial: some fields of `Trial`.

    In its file, `until` is in seconds since the epoch: machines share no other clock.
    """

    spec: TrialSpec
    lane: LanePlan
    parameters: Parameters
    beside_bytes: int
    may_wait: bool
    until: float | None

    def later_by(self, seconds: float) -> GangTrial:
        return self.model_copy(update={"until": None if self.until is None else self.until + seconds})


def train_in_attempts(
    trial: Trial[Any],
    folder: Path,
    attempt: Callable[[Path], str | None],
    *,
    num_ranks: int,
    most_restarts: int,
    where: str,
    pause_s: float = 0.0,
) -> FitRecord:
    """The record of the first attempt after which all ranks are done, with a note for each that was lost.

    `attempt` starts all ranks with a folder of its own in the gang's `folder`, and returns after their end,
    with the reason if it knows why one was lost. Raises `TrialError` if that happens too often, and the
    refusal of a rank.
    """
    logs = trial.paths.rank_logs
    logs.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # left by a run that was stopped
    folder.mkdir(parents=True)
    asked = GangTrial.model_validate(trial, from_attributes=True)
    write_json(folder / _TRIAL, asked.later_by(time.time() - time.monotonic()))
    losses: list[str] = []
    while True:
        place = folder / f"attempt-{len(losses)}"
        place.mkdir()
        lost = attempt(place)
        if (refused := folder / REFUSED).exists():  # another attempt would only repeat it
            found = read_json(refused)
            raise error_of_kind(found["kind"], found["message"])
        lost = lost or loss(place, num_ranks, logs)
        if lost is None:
            break
        losses.append(lost)
        if len(losses) > most_restarts:
            number = counted(len(losses), "attempt")
            raise TrialError(
                f"{trial.name}: {lost}. Given up after {number} with {where}; the ranks' logs are in {logs}."
            )
        time.sleep(pause_s)
    record = read_record(folder / RECORD, FitRecord)
    begin = "the last checkpoint" if trial.spec.branch == "neural" else "the first tree"
    notes = [f"started again from {begin}: {lost}" for lost in losses]
    smaller = folder / SMALLER
    if smaller.exists():
        notes.append(read_json(smaller)["note"])
    shutil.rmtree(folder)
    return record.model_copy(update={"notes": (*record.notes, *notes)})


def read_trial(folder: Path) -> GangTrial:
    """What the launcher wrote, with the micro-batches that an earlier attempt found to fit."""
    asked = read_record(folder / _TRIAL, GangTrial).later_by(time.monotonic() - time.time())
    smaller = folder / SMALLER
    if not smaller.exists():
        return asked
    less = {"micro_batch_size": read_json(smaller)["micro_rows"]}
    return asked.model_copy(update={"parameters": asked.parameters.model_copy(update=less)})


def rank_arguments(trial: NeuralTrial, attempt: Path) -> list[str]:
    """The arguments after ``python`` or ``torchrun``: the rank's module and its attempt.

    No option may be a common prefix of two torchrun options: torchrun would read it as its own and complain.
    """
    return ["-m", "sparkgpu.neural.ranks", "--run-dir", str(trial.run.root), "--attempt", str(attempt)]


def loss(attempt: Path, num_ranks: int, logs: Path) -> str | None:
    """Why a finished attempt was lost, with the rank at fault; None if all its ranks are done.

    At fault is a rank without a written reason; else the one with the earliest reason; else one that never
    started. Those that were asked to end only follow another one, and so may those that failed.
    """
    lost = [rank for rank in range(num_ranks) if not rank_file(attempt, rank, "done").exists()]
    if not lost:
        return None
    absent = [rank for rank in lost if read_sign(attempt, rank) is None]
    errors = {rank: rank_file(attempt, rank, "error.json") for rank in lost}
    found = {rank: read_json(file) for rank, file in errors.items() if file.exists()}
    ended = [
        rank for rank in lost if (file := rank_file(attempt, rank, "ended")).exists() and file.stat().st_size
    ]
    explained = {*absent, *found, *ended}
    # Without the killed rank, the others fail or are ended.
    if silent := [rank for rank in lost if rank not in explained]:
        return f"rank {silent[0]} of {num_ranks} was killed (out of memory?){last_output(logs, silent[0])}"
    if found:
        first = min(found, key=lambda rank: found[rank]["at"])
        return f"rank {first} of {num_ranks} failed with {found[first]['message']}"
    if len(absent) == num_ranks:
        return f"none of {num_ranks} ranks started"
    if absent:
        return f"rank {absent[0]} of {num_ranks} never started{last_output(logs, absent[0])}"
    return f"all {num_ranks} ranks were asked to end"


def last_output(logs: Path, rank: int) -> str:
    return f"; {last_line(logs / f'rank-{rank}.log')}"


def last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return f"its last output: {lines[-1].strip()!r}" if lines else "it wrote nothing"
