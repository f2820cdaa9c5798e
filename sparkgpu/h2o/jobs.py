"""Follows a job inside H2O: its progress, why it failed and, in a cloud, whether it is stuck.

A job is stuck if it makes no progress and the stacks of all nodes only wait, at several looks one after the
other. A slow tree is never taken for stuck.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import h2o
from h2o.exceptions import H2OError

from sparkgpu.core.errors import TrialError
from sparkgpu.h2o.cloud import Cloud

_CANCEL_S = 0.1
STUCK_S = 60.0  # several looks at the stacks (`cloud.LOOK_EVERY_S`)
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
        self._progress: object = None
        self._worked = time.monotonic()

    def done(self) -> float | None:
        """The share that is done; None when the job is over. Raises `TrialError` if it is stuck."""
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
        now = time.monotonic()
        try:
            works = progress != self._progress or cloud.works()
        except (OSError, H2OError):
            return  # the job may continue though a question failed
        if works:
            self._progress, self._worked = progress, now
        elif now - self._worked > STUCK_S:
            said = _last_error(len(cloud.nodes))
            raise StalledError(
                f"{self._trial}: H2O is stuck: no thread of {', '.join(sorted(cloud.nodes))} works. "
                + (f"Its last error: {said}" if said else "Its logs in the executors' folders hold no error.")
            )


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


def _last_error(num_nodes: int) -> str:
    """The last line of a node's error log, if there is one."""
    for node in range(num_nodes):
        try:
            lines = h2o.api(f"GET /3/Logs/nodes/{node}/files/error")["log"].strip().splitlines()
        except (OSError, H2OError, KeyError):
            continue  # the message works without it
        if lines:
            return str(lines[-1])[:_MOST_LETTERS]
    return ""
