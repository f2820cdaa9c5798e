"""Follows a job inside H2O: how far it is, why it failed, and, in a cloud, whether it stands still.

A job that stands still is told from a slow one by three signs together: no progress, no processor time in any
node, and stacks that only wait, each time one looks; or by a wait that is only met when training has ended.
A tree may take as long as it wants.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import h2o
from h2o.exceptions import H2OError

from sparkgpu.engines.trees.h2o_cloud import Cloud, Standing, say_good_bye
from sparkgpu.errors import TrialError

_LOOK_EVERY_S = 5.0
_SLOW_S = 15.0  # before stacks are asked for, which H2O writes to its logs
_CLOSING_S = 10.0  # closing takes a healthy cloud milliseconds
_WAITING_S = 45.0
_ENDING_S = 30.0
_MOST_LETTERS = 400

_CLASS = r"(?:[\w$]+\.)+[\w$]*(?:Exception|Error|Throwable)[\w$]*"
_CAUSED_BY = re.compile(rf"^\s*Caused by: ({_CLASS})(?:: (.*))?$", re.MULTILINE)
_ON_NODE = re.compile(r"DistributedException from (?:[^/\s]*/)?([^\s:]+:\d+)")


class StandStillError(TrialError):
    """H2O waits for what will never come; its cloud is of no use to further trials."""


class H2OJob:
    """A job named `trial`; with `cloud`, one of `num_nodes` nodes, it is watched."""

    def __init__(self, key: str, trial: str, cloud: Cloud | None = None, num_nodes: int = 1) -> None:
        self._key = key
        self._trial = trial
        self._cloud = cloud
        self._num_nodes = num_nodes
        self._watch = StandStill(time.monotonic)
        self._released: float | None = None

    def done(self) -> float | None:
        """The share that is done; None when the job is over. Raises `TrialError` when it stands still.

        Before that, a wait of H2O's that can be ended is ended: the job then fails and says why.
        """
        with refusals_of(self._trial):
            state = h2o.api(f"GET /3/Jobs/{self._key}")["jobs"][0]
        if state["status"] not in ("CREATED", "RUNNING"):
            return None
        if self._cloud is not None:
            self._look((state["progress"], state["progress_msg"]), self._cloud)
        return float(state["progress"])

    def _look(self, progress: object, cloud: Cloud) -> None:
        try:
            standing = self._watch.see(progress, cloud)
        except (OSError, H2OError):
            return  # a question that fails is no reason to give up a job that goes on
        if standing is not None:
            self._end(standing)

    def _end(self, standing: Standing) -> None:
        if self._released is None and standing.tracker:
            self._released = time.monotonic()
            try:
                say_good_bye(standing.tracker, self._num_nodes)
            except OSError as error:
                raise self._stands_still(f"{standing.words}, which cannot be ended ({error})") from error
        elif self._released is None or time.monotonic() - self._released > _ENDING_S:
            raise self._stands_still(standing.words)

    def _stands_still(self, words: str) -> StandStillError:
        said = _last_errors(self._num_nodes)
        return StandStillError(
            f"{self._trial}: H2O stands still: {words}. "
            + (f"Its last error: {said}" if said else "Its logs, in the executors' folders, say no more.")
        )


class StandStill:
    """Decides whether a job stands still, from what is seen of it and of its cloud."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._progress: object = None
        self._look = clock()
        self._ask_for_stacks = clock()
        self._standing_since: float | None = None

    def see(self, progress: object, cloud: Cloud) -> Standing | None:
        """What the cloud waits in, once that has lasted too long; looks every few seconds."""
        now = self._clock()
        if progress != self._progress:
            self._progress, self._standing_since = progress, None
            self._look, self._ask_for_stacks = now + _LOOK_EVERY_S, now + _SLOW_S
            return None
        if now < self._look:
            return None
        self._look = now + _LOOK_EVERY_S
        is_quiet = cloud.is_quiet()  # each time: it is told since the question before
        if now < self._ask_for_stacks:
            return None
        standing = cloud.standing()
        # The one wait that no working cloud can be in needs no second sign. Ended too early, it does no harm.
        if standing is None or (is_quiet is False and not standing.tracker):
            self._standing_since = None
            self._ask_for_stacks = now + _SLOW_S * (1 if is_quiet else 3)
            return None
        if self._standing_since is None:
            self._standing_since = now
        bound = _CLOSING_S if standing.tracker else _WAITING_S
        return standing if now - self._standing_since >= bound else None


@contextmanager
def refusals_of(trial: str) -> Iterator[None]:
    """What H2O refuses or fails with inside the block, as a `TrialError` that says its cause."""
    try:
        yield
    except (OSError, H2OError) as error:
        raise TrialError(f"{trial}: H2O XGBoost failed: {cause_of(str(error))}") from error


def cause_of(text: str) -> str:
    """What H2O really met, as its client tells it: of a Java exception the deepest cause, and its node."""
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
    """The last line of a node's log of errors, where there is one."""
    for node in range(num_nodes):
        try:
            lines = h2o.api(f"GET /3/Logs/nodes/{node}/files/error")["log"].strip().splitlines()
        except (OSError, H2OError, KeyError):
            continue  # the reason is said without it
        if lines:
            return str(lines[-1])[:_MOST_LETTERS]
    return ""
