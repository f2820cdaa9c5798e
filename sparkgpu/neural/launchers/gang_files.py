"""The files in which the ranks of one gang tell their starter the result, and which rank was lost.

Each attempt has a folder. For rank N, ``rank-N.done`` there means success, ``rank-N.error.json`` gives the
error, and ``rank-N.ended`` holds the stack of a rank that was asked to end. A rank that began and left none
of these files was killed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from sparkgpu.core.errors import SparkgpuError, error_of_kind
from sparkgpu.core.rundir.files import read_json, write_json, write_text
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.neural.launchers.heartbeat import ended_file, read_sign
from sparkgpu.trials.engine import NeuralTrial

UNTIL = "until.json"
"""When the trial has to be done, in seconds since the epoch; absent without a time limit."""

SMALLER = "smaller.json"
"""The micro-batches for the next attempt, written by a rank that ran out of memory."""

_ATTEMPT = re.compile(r"attempt-(\d+)")


def rank_arguments(trial: NeuralTrial, folder: Path) -> list[str]:
    """The arguments after ``python`` or ``torchrun``: the rank's module and its trial.

    No option may be a common prefix of two torchrun options: torchrun would read it as its own and complain.
    """
    return [
        "-m", "sparkgpu.neural.ranks", "--run-dir", str(trial.run.root), "--trial", trial.name,
        "--folder", str(folder),
    ]  # fmt: skip


def write_trial(trial: NeuralTrial, folder: Path) -> None:
    """What the ranks read of their trial."""
    write_text(folder / "config.json", trial.parameters.model_dump_json())
    if trial.until is not None:
        write_json(folder / UNTIL, {"until": trial.until})


def read_until(folder: Path) -> float | None:
    """When the trial has to be done."""
    file = folder / UNTIL
    return float(read_json(file)["until"]) if file.exists() else None


def refusal(folder: Path) -> SparkgpuError | None:
    """The error with which a rank refused its work; another attempt would only repeat it."""
    file = folder / "refused.json"
    if not file.exists():
        return None
    found = read_json(file)
    return error_of_kind(found["kind"], found["message"])


def finished_record(folder: Path, losses: Sequence[str]) -> FitRecord:
    """The leading rank's record, with a note for each earlier attempt that was lost."""
    record = FitRecord.model_validate(read_json(folder / "record.json"))
    notes = [f"started again from the last checkpoint: {loss}" for loss in losses]
    smaller = folder / SMALLER
    if smaller.exists():
        notes.append(read_json(smaller)["note"])
    return record.model_copy(update={"notes": (*record.notes, *notes)})


def attempts(folder: Path) -> list[Path]:
    """The folders of the attempts, in order."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := _ATTEMPT.fullmatch(path.name))}
    return [found[number] for number in sorted(found)]


def loss(attempt: Path, num_ranks: int, logs: Path) -> str | None:
    """Why a finished attempt was lost, with the rank at fault; None if all its ranks are done."""
    missing = [rank for rank in range(num_ranks) if not is_done(attempt, rank)]
    return blame(attempt, missing, num_ranks, lambda rank: _last_output(logs, rank)) if missing else None


def blame(attempt: Path, lost: Sequence[int], num_ranks: int, last_output: Callable[[int], str]) -> str:
    """Which of the `lost` ranks is at fault, and what happened to it; none of them is done or alive.

    It is one without a written reason; else the one with the earliest reason; else one that never started.
    Those that were asked to end only follow another one, and so may those that failed.
    """
    absent = [rank for rank in lost if read_sign(attempt, rank) is None]
    errors = {rank: attempt / f"rank-{rank}.error.json" for rank in lost}
    found = {rank: read_json(file) for rank, file in errors.items() if file.exists()}
    explained = {*absent, *found, *(rank for rank in lost if _was_asked_to_end(attempt, rank))}
    # Without the killed rank, the others fail or are ended.
    if silent := [rank for rank in lost if rank not in explained]:
        return f"rank {silent[0]} of {num_ranks} was killed (out of memory?){last_output(silent[0])}"
    if found:
        first = min(found, key=lambda rank: found[rank]["at"])
        return f"rank {first} of {num_ranks} failed with {found[first]['message']}"
    if absent:
        return f"rank {absent[0]} of {num_ranks} never started{last_output(absent[0])}"
    return f"all {num_ranks} ranks were asked to end"


def is_done(attempt: Path, rank: int) -> bool:
    """Whether a rank has succeeded."""
    return (attempt / f"rank-{rank}.done").exists()


def _was_asked_to_end(attempt: Path, rank: int) -> bool:
    file = ended_file(attempt, rank)
    return file.exists() and file.stat().st_size > 0


def _last_output(logs: Path, rank: int) -> str:
    file = logs / f"rank-{rank}.log"
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines() if file.exists() else []
    return f"; its last output: {lines[-1].strip()!r}" if lines else "; it wrote nothing"
