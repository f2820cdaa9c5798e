"""What a worker tells the parent while it works: one JSON object per line, appended to a file of its lane.

A file, not a pipe: it outlives both ends, can be read on another machine, and a slow reader never stops a
worker. Losing the last line when a process is killed is harmless, since results are files of their own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sparkgpu.rundir.files import Record, write_json

Branch = Literal["trees", "neural"]


class Event(Record):
    """One step of a worker.

    `kind` is ``phase`` (a new activity began: `text`), ``progress`` (`done` of 1.0 of `trial`, with the
    step and the validation metric where there is one), ``trial_done``, ``trial_failed`` (`text` says why),
    ``alive`` (work was done that nothing else shows). `at` is seconds since the epoch.
    """

    at: float
    kind: Literal["phase", "progress", "trial_done", "trial_failed", "alive"]
    text: str = ""
    trial: str | None = None
    done: float | None = None
    step: int | None = None
    metric: str | None = None
    value: float | None = None


class EventWriter:
    """Appends events, and keeps the seconds spent in each phase for the report."""

    def __init__(self, path: Path, phases_path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._phases_path = phases_path
        self._phases: dict[str, float] = {}

    def close(self) -> None:
        """Needed only by a process that outlives its writer."""
        os.close(self._descriptor)

    def emit(self, event: Event) -> None:
        # One write per line: O_APPEND keeps lines whole even when threads report at the same time.
        os.write(self._descriptor, event.model_dump_json(exclude_defaults=True).encode() + b"\n")

    @contextmanager
    def phase(self, name: str, trial: str | None = None) -> Iterator[None]:
        """Report that `name` begins, and add its wall seconds to the phases when it ends."""
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

    def alive(self) -> None:
        """Tell that work goes on elsewhere, as on a cluster's executors; displays show nothing of it."""
        self.emit(Event(at=time.time(), kind="alive"))


class EventReader:
    """Reads what was appended since the last look; an incomplete last line waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[Event]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        return [_event(json.loads(line)) for line in data[:end].splitlines()]


def _event(data: dict[str, Any]) -> Event:
    return Event.model_validate(data)
