"""The reports of a worker to the parent: one JSON object per line, appended to a file of its lane.

It is a file, not a pipe: it outlives both ends, another machine can read it, and a slow reader never stops a
worker. A killed process may lose its last line. That is harmless, since results are in other files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from sparkgpu.core.host.lines import LineReader, end_cut_line
from sparkgpu.core.rundir.files import UNREADABLE, Record, read_json, write_json

TRAINING = "training"
"""The phase in which a trial's device works for it."""

WAITING_FOR_TREES, WAITING_FOR_NETWORK = "waiting for the trees", "waiting for the network"
"""The phases of a branch whose device the other one uses first."""

PROBING, WAITING_FOR_PROBE = "probing H2O on the GPU", "waiting for the probe of another lane"


class Event(Record):
    """One report of a worker.

    `kind` is ``phase`` (the activity `text` began; `done` is what a checkpoint brought), ``progress`` (share
    `done` of `trial`, with the step and, if there is one, the validation metric), ``trial_done``,
    ``trial_failed`` (`text` is the reason), ``trial_left`` (there is no time for it) or ``alive`` (work was
    done that nothing else shows). `at` is in seconds since the epoch.
    """

    at: float
    kind: Literal["phase", "progress", "trial_done", "trial_failed", "trial_left", "alive"]
    text: str = ""
    trial: str | None = None
    done: float | None = None
    step: int | None = None
    metric: str | None = None
    value: float | None = None


class EventWriter:
    """Appends events, and records the seconds of each phase for the report."""

    def __init__(self, path: Path, phases_path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        end_cut_line(path)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._phases_path = phases_path
        self._phases: dict[str, float] = {}
        with suppress(*UNREADABLE):  # what earlier parts of a resumed run took counts as well
            self._phases = read_json(phases_path)

    def close(self) -> None:
        """Only a process that outlives its writer needs this."""
        os.close(self._descriptor)

    def emit(self, event: Event) -> None:
        # One write per line: O_APPEND keeps lines whole even if threads report at the same time.
        os.write(self._descriptor, event.model_dump_json(exclude_defaults=True).encode() + b"\n")

    @contextmanager
    def phase(self, name: str, trial: str | None = None) -> Iterator[None]:
        """Report that phase `name` begins, and record its wall seconds when it ends."""
        start = time.perf_counter()
        self.emit(Event(at=time.time(), kind="phase", text=name, trial=trial))
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.perf_counter() - start
            write_json(self._phases_path, {key: round(value, 3) for key, value in self._phases.items()})

    def progress(
        self,
        trial: str,
        done: float,
        *,
        step: int | None = None,
        metric: str | None = None,
        value: float | None = None,
    ) -> None:
        self.emit(
            Event(
                at=time.time(), kind="progress", trial=trial, done=done, step=step, metric=metric, value=value
            )
        )

    def trial_done(self, trial: str) -> None:
        self.emit(Event(at=time.time(), kind="trial_done", trial=trial, done=1.0))

    def trial_failed(self, trial: str, text: str) -> None:
        self.emit(Event(at=time.time(), kind="trial_failed", trial=trial, text=text))

    def trial_left(self, trial: str) -> None:
        self.emit(Event(at=time.time(), kind="trial_left", trial=trial))

    def alive(self) -> None:
        """Report that work continues elsewhere, such as on a cluster's executors; displays do not show it."""
        self.emit(Event(at=time.time(), kind="alive"))


class EventReader:
    """Reads the events since the last read; a line that is no event is left out."""

    def __init__(self, path: Path) -> None:
        self._lines = LineReader(path)

    def new(self) -> list[Event]:
        found = []
        for line in self._lines.new():
            with suppress(ValidationError):
                found.append(Event.model_validate_json(line))
        return found
