"""Checkpoints of a training, written with torch.distributed.checkpoint: each is complete or absent.

One folder holds ``progress.json`` and the tensors of network and optimizer. Each rank writes its shards under
the whole network's names, so any strategy on any number of devices can continue from it. It holds no random
states, since all randomness follows from the place in training (`nets.dropout`, `rows`).

torch.distributed.checkpoint is imported at the first checkpoint: it loads DTensor and sympy (0.7 s, 50 MB),
and a training of a few seconds writes no checkpoint.
"""

from __future__ import annotations

import re
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.files import UNREADABLE, digest, read_json, sync, synced_digest, write_json

if TYPE_CHECKING:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    from sparkgpu.neural.strategies.base import Strategy

_NAME = re.compile(r"epoch-(\d+)-step-(\d+)")
_KEPT = 2  # checkpoints: a damaged one falls back to the one before
_EPOCH_S = 10.0  # an epoch writes no checkpoint if the last one is younger
_ASKED_EVERY = 50  # steps between two looks at the clock and the run directory


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One epoch: seconds since the start, and the metric on training (with dropout) and validation rows.

    `error` is the share of wrong classes on validation rows, if that decides which epoch is kept.
    """

    epoch: int
    elapsed_s: float
    train: float
    valid: float
    error: float | None = None

    def beats(self, other: CurvePoint) -> bool:
        """Whether this later epoch is the better one."""
        if self.error is not None and other.error is not None:
            return self.error <= other.error
        return self.valid < other.valid


@dataclass(kw_only=True)
class TrainingState:
    """The state of a training: whole epochs done, steps of the next epoch, and the results so far.

    `best` did best on validation rows. `total` is the summed loss over the steps of the unfinished epoch.
    `plain_steps` says why steps that were to be captured and repeated were not.
    """

    epoch: int = 0
    step: int = 0
    total: float = 0.0
    ended: bool = False
    out_of_time: bool = False
    plain_steps: str | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    best: CurvePoint | None = None
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of one trial in `folder`; all ranks of a trial must call each method together.

    The file `request` asks for an extra checkpoint.
    """

    def __init__(self, folder: Path, *, minutes: float, request: Path | None = None) -> None:
        self._folder = folder
        self._request = request
        self._answered = False
        self._interval_s = minutes * 60
        self._saved_at = time.monotonic()

    def due(self, strategy: Strategy, step: int | None = None) -> bool:
        """Whether a checkpoint is due after a step, or at the end of an epoch; or one was requested."""
        if step is not None and step % _ASKED_EVERY:
            return False
        interval_s = self._interval_s if step is not None else min(self._interval_s, _EPOCH_S)
        is_due = self._is_requested() or time.monotonic() - self._saved_at >= interval_s
        return strategy.greatest(is_due) > 0

    def _is_requested(self) -> bool:
        return self._request is not None and not self._answered and self._request.exists()

    def save(self, strategy: Strategy, optimizer: torch.optim.Optimizer, progress: TrainingState) -> None:
        """Write a checkpoint. It is complete when this returns on the leading rank."""
        from torch.distributed.checkpoint import state_dict_saver

        self._answered = self._answered or self._is_requested()
        name = f"epoch-{progress.epoch:05d}-step-{progress.step:07d}"
        temporary = self._folder / f".{name}"
        if strategy.leads:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        if dist.is_initialized():
            dist.barrier()
        state = _state(strategy, optimizer, progress.best_weights)
        with _quiet():
            state_dict_saver.save(state, checkpoint_id=temporary, no_dist=not dist.is_initialized())
        if strategy.leads:
            found = asdict(replace(progress, best_weights={}))
            found["best_weights"] = bool(progress.best_weights)
            found["precision"] = str(strategy.precision)
            found["scaler"] = strategy.scaler.state_dict() if strategy.scaler is not None else None
            found["files"] = {file.name: synced_digest(file) for file in temporary.iterdir()}
            write_json(temporary / "progress.json", found)
            sync(temporary / "progress.json")
            sync(temporary)
            if (self._folder / name).exists():  # left by a training that was stopped at this point
                shutil.rmtree(self._folder / name)
            temporary.replace(self._folder / name)
            sync(self._folder)
            for other in self._all()[:-_KEPT]:
                shutil.rmtree(other)
        self._saved_at = time.monotonic()

    def load(self, strategy: Strategy, optimizer: torch.optim.Optimizer) -> TrainingState | None:
        """Restore network and optimizer from the last checkpoint that is whole; None if there is none at all.

        One of another version changes nothing, and a new state says so.
        """
        kept = self._all()
        if not kept:
            return None
        last = next(filter(_is_whole, reversed(kept)), None)
        if last is None:
            return TrainingState(notes=["begun anew: its checkpoints are damaged"])
        from torch.distributed.checkpoint import state_dict_loader
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict

        from sparkgpu.neural.training.checkpoint_internals import PlainPlanner, PlainReader

        found = read_json(last / "progress.json")
        if found.keys() != {*(field.name for field in fields(TrainingState)), "precision", "scaler", "files"}:
            return TrainingState(notes=["begun anew: its checkpoint is of another version of sparkgpu"])
        del found["files"]
        if last != kept[-1]:
            found["notes"].append("continued from an older checkpoint, since the newest is damaged")
        best_weights = strategy.snapshot() if found.pop("best_weights") else {}
        state = _state(strategy, optimizer, best_weights)
        try:
            with _quiet():
                state_dict_loader.load(
                    state, storage_reader=PlainReader(last), planner=PlainPlanner(),
                    no_dist=not dist.is_initialized(),
                )  # fmt: skip
        except CheckpointException as error:  # no Exception, and it would end the process
            reason = next(iter(error.failures.values()))[0]
            raise TrialError(
                f"{last}: the checkpoint cannot be read ({reason}). Remove that folder: training begins anew."
            ) from error
        set_model_state_dict(strategy.net, state["model"])
        set_optimizer_state_dict(strategy.net, optimizer, state["optimizer"], options=_flat())
        scaler = found.pop("scaler")
        if scaler and strategy.scaler is not None:
            strategy.scaler.load_state_dict(scaler)
        before, now = found.pop("precision"), str(strategy.precision)
        if before != now:
            found["notes"].append(f"until the checkpoint it was trained in {before}; from there on in {now}")
        curve = [CurvePoint(**point) for point in found.pop("curve")]
        best = found.pop("best")
        return TrainingState(
            curve=curve,
            best=CurvePoint(**best) if best else None,
            best_weights=state.get("best", {}),
            **found,
        )

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _all(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))


def _is_whole(folder: Path) -> bool:
    """Whether all files are as they were written."""
    try:
        digests = read_json(folder / "progress.json").get("files", {})
        return all(digest(folder / name) == found for name, found in digests.items())
    except UNREADABLE:
        return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's warning that a single process is saving, which is intended here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _state(
    strategy: Strategy, optimizer: torch.optim.Optimizer, best_weights: dict[str, Tensor]
) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    state: dict[str, Any] = {
        "model": get_model_state_dict(strategy.net),
        "optimizer": get_optimizer_state_dict(strategy.net, optimizer, options=_flat()),
    }
    if best_weights:
        state["best"] = best_weights
    return state


def _flat() -> StateDictOptions:
    """A key for each parameter: strategies group parameters differently, and a stage has only its own."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    return StateDictOptions(flatten_optimizer_state_dict=True)
