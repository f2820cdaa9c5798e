"""How workers work: a branch's trials one after the other, each leaving its record or the reason why there
is none; and what goes on beside them."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from sparkgpu.artifacts import FitRecord, RunPaths, write_json, write_text
from sparkgpu.errors import SparkgpuError
from sparkgpu.events import EventWriter
from sparkgpu.plan import TrialSpec

ValueT = TypeVar("ValueT")


def run_trials(
    trials: Iterable[TrialSpec],
    paths: RunPaths,
    events: EventWriter,
    run_trial: Callable[[TrialSpec], FitRecord],
) -> bool:
    """Run the trials that are not done yet; whether all are now. A failed one does not keep the next from
    running."""
    all_done = True
    for spec in trials:
        trial = paths.trial(spec.name)
        if trial.done.exists():  # by the run that this one goes on with
            events.trial_done(spec.name)
            continue
        try:
            record = run_trial(spec)
            write_json(trial.fit, record)
            write_text(trial.done, "")
            events.trial_done(spec.name)
        except Exception as error:
            all_done = False
            traceback.print_exc()
            write_json(trial.error, described(error))
            events.trial_failed(spec.name, described(error)["message"])
    return all_done


def described(error: BaseException) -> dict[str, str]:
    """An error as ``error.json`` holds it: kind, and one line for the user."""
    if isinstance(error, SparkgpuError):
        return {"kind": error.kind, "message": str(error)}
    lines = str(error).strip().splitlines()
    return {"kind": "trial", "message": f"{type(error).__name__}: {lines[0] if lines else 'no message'}"}


class InBackground(Generic[ValueT]):
    """Runs a function in a thread; `result` waits for it and raises what it raised."""

    def __init__(self, function: Callable[[], ValueT]) -> None:
        self._value: ValueT
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], ValueT]) -> None:
        try:
            self._value = function()
        except BaseException as error:
            self._error = error

    def result(self) -> ValueT:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value
