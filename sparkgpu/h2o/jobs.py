"""Follows a job inside H2O: its progress, why it failed and, in a cloud, whether it is stuck.

Three signs together tell a stuck job from a slow one: no progress, no processor time in any node, and stacks
that only wait, at several looks one after the other. A wait that only happens after training is enough by
itself. A slow tree is never taken for stuck.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import h2o
from h2o.exceptions import H2OError

from sparkgpu.core.errors import TrialError
from sparkgpu.h2o.cloud import Cloud, Stall, shutdown_tracker

_CANCEL_S = 0.1
_LOOK_EVERY_S = 15.0  # three times that while nodes work: H2O writes the stacks that we ask for to its logs
_LOOKS = 4
_LOOKS_AT_CLOSING = 2  # a healthy cloud closes within milliseconds
_ENDING_S = 30.0
_MOST_LETTERS = 400

_CLASS = r"(?:[\w$]+\.)+[\w$]*(?:Exception|Error|Throwable)[\w$]*"
_CAUSED_BY = re.compile(rf"^\s*Caused by: ({_CLASS})(?:: (.*))?$", re.MULTILINE)
_ON_NODE = re.compile(r"DistributedException from (?:[^/\s]*/)?([^\s:]+:\d+)")


class StalledError(TrialError):
    """H2O waits forever; its cloud is useless for further trials."""


class H2OJob:
    """A job named `trial`; with `cloud` it is watched."""

    def __init__(self, key: str, trial: str, cloud: Cloud | None) -> None:
        self._key = key
        self._trial = trial
        self._cloud = cloud
        self._watch = StallWatch(time.monotonic)
        self._released: float | None = None

    def done(self) -> float | None:
        """The share that is done; None when the job is over. Raises `TrialError` if it is stuck.

        If H2O waits for something that can be ended, this ends it first: the job then fails with the reason.
        """
        with refusals_of(self._trial):
            state = h2o.api(f"GET /3/Jobs/{self._key}")["jobs"][0]
        if state["status"] not in ("CREATED", "RUNNING"):
            return None
        if self._cloud is not None:
            self._look((state["progress"], state["progress_msg"]), self._cloud)
        return float(state["progress"])

    def cancel(self) -> None:
        """Ask H2O to end the job, and wait until it has."""
        h2o.api(f"POST /3/Jobs/{self._key}/cancel")
        while self.done() is not None:
            time.sleep(_CANCEL_S)

    def _look(self, progress: object, cloud: Cloud) -> None:
        try:
            stall = self._watch.see(progress, cloud)
        except (OSError, H2OError):
            return  # the job may continue though a question failed
        if stall is not None:
            self._end(stall, len(cloud.nodes))

    def _end(self, stall: Stall, num_nodes: int) -> None:
        if self._released is None and stall.tracker:
            self._released = time.monotonic()
            try:
                shutdown_tracker(stall.tracker, num_nodes)
            except OSError as error:
                raise self._stalled(f"{stall.reason}, which cannot be ended ({error})", num_nodes) from error
        elif self._released is None or time.monotonic() - self._released > _ENDING_S:
            raise self._stalled(stall.reason, num_nodes)

    def _stalled(self, reason: str, num_nodes: int) -> StalledError:
        said = _last_errors(num_nodes)
        return StalledError(
            f"{self._trial}: H2O is stuck: {reason}. "
            + (f"Its last error: {said}" if said else "Its logs in the executors' folders hold no error.")
        )


class StallWatch:
    """Decides whether a job is stuck, from its progress and its cloud."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._progress: object = None
        self._next = 0.0
        self._looks = 0
        """So many, one after the other, that showed the cloud waiting."""

    def see(self, progress: object, cloud: Cloud) -> Stall | None:
        """What the cloud waits for, if that has lasted too long; looks now and then."""
        now = self._clock()
        if progress != self._progress:
            self._progress, self._looks, self._next = progress, 0, now + _LOOK_EVERY_S
        if now < self._next:
            return None
        is_quiet, stall = cloud.is_quiet(), cloud.stall()
        # A working cloud is never in this wait, so one sign is enough. Ending it too early does no harm.
        is_waiting = stall is not None and (is_quiet is not False or stall.tracker is not None)
        self._looks = self._looks + 1 if is_waiting else 0
        self._next = now + _LOOK_EVERY_S * (1 if is_waiting or is_quiet else 3)
        return stall if stall and self._looks >= (_LOOKS_AT_CLOSING if stall.tracker else _LOOKS) else None


@contextmanager
def refusals_of(trial: str) -> Iterator[None]:
    """Turn H2O's refusals and failures inside the block into a `TrialError` with the cause."""
    try:
        yield
    except (OSError, H2OError) as error:
        raise TrialError(f"{trial}: H2O XGBoost failed: {cause_of(str(error))}") from error


def cause_of(text: str) -> str:
    """The cause in an error of H2O's client: for a Java exception the deepest cause, and its node."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("at ")]
    first = _without_classes(lines[0].partition("failed with an exception: ")[2] or lines[0]) if lines else ""
    causes = [message or name for name, message in _CAUSED_BY.findall(text)]
    if not causes:
        return (first or "no reason given")[:_MOST_LETTERS]
    cause = _without_classes(causes[-1])
    found = _ON_NODE.search(text)
    node = f" (on node {found.group(1)})" if found else ""
    said = cause if first == cause or not first else f"{first}: {cause}"
    return said[:_MOST_LETTERS] + node


def _without_classes(text: str) -> str:
    return re.sub(rf"^(?:{_CLASS}: )+", "", text).strip().rstrip(".")


def _last_errors(num_nodes: int) -> str:
    """The last line of a node's error log, if there is one."""
    for node in range(num_nodes):
        try:
            lines = h2o.api(f"GET /3/Logs/nodes/{node}/files/error")["log"].strip().splitlines()
        except (OSError, H2OError, KeyError):
            continue  # the message works without it
        if lines:
            return str(lines[-1])[:_MOST_LETTERS]
    return ""
