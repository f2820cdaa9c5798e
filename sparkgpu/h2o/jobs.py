"""Follows a job inside H2O: its progress, why it failed and, in a cloud, whether it stalls.

H2O 3.46 waits forever, and logs nothing, if XGBoost's set-up fails on one of several nodes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import h2o
from h2o.exceptions import H2OConnectionError, H2OError

from sparkgpu.core.errors import TrialError

_CANCEL_S = 0.1
STILL_S = 600.0
_MOST_LETTERS = 400

_CLASS = r"(?:[\w$]+\.)+[\w$]*(?:Exception|Error|Throwable)[\w$]*"
_CAUSED_BY = re.compile(rf"^\s*Caused by: ({_CLASS})(?:: (.*))?$", re.MULTILINE)
_ON_NODE = re.compile(r"DistributedException from (?:[^/\s]*/)?([^\s:]+:\d+)")


class H2OJob:
    """A job named `trial`, of a cloud of several nodes or of a lane's one, which others watch."""

    def __init__(self, key: str, trial: str, *, in_cloud: bool) -> None:
        self._key = key
        self._trial = trial
        self._in_cloud = in_cloud
        self._progress: object = None
        self._worked = time.monotonic()

    def done(self) -> float | None:
        """The share that is done; None when the job is over. Raises `TrialError`."""
        with refusals_of(self._trial):
            state = h2o.api(f"GET /3/Jobs/{self._key}")["jobs"][0]
        if state["status"] not in ("CREATED", "RUNNING"):
            return None
        if self._in_cloud:
            self._look((state["progress"], state["progress_msg"]))
        return float(state["progress"])

    def cancel(self) -> None:
        """Ask H2O to end the job, and wait until it has."""
        h2o.api(f"POST /3/Jobs/{self._key}/cancel")
        while self.done() is not None:
            time.sleep(_CANCEL_S)

    def _look(self, progress: object) -> None:
        now = time.monotonic()
        if progress != self._progress:
            self._progress, self._worked = progress, now
        elif now - self._worked > STILL_S:
            raise TrialError(
                f"{self._trial}: H2O made no progress for {STILL_S / 60:.0f} minutes; its logs are in the "
                'executors\' folders. trees.engine = "xgboost" trains over executors without H2O.'
            )


@contextmanager
def refusals_of(trial: str) -> Iterator[None]:
    """Turn H2O's refusals and failures inside the block into a `TrialError` with the cause.

    A JVM that is gone gave none.
    """
    try:
        yield
    except H2OConnectionError:
        raise
    except (OSError, H2OError) as error:
        raise TrialError(f"{trial}: H2O XGBoost failed: {cause_of(str(error))}") from error


def cause_of(text: str) -> str:
    """The cause in an error of H2O's client: for a Java exception the deepest cause, and its node."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("at ")]
    first = _without_classes(lines[0].partition("failed with an exception: ")[2] or lines[0]) if lines else ""
    causes = [_without_classes(message or name) for name, message in _CAUSED_BY.findall(text)]
    said = ": ".join(dict.fromkeys(filter(None, [first, *causes[-1:]]))) or "no reason given"
    node = _ON_NODE.search(text) if causes else None
    return said[:_MOST_LETTERS] + (f" (on node {node[1]})" if node else "")


def _without_classes(text: str) -> str:
    return re.sub(rf"^(?:{_CLASS}: )+", "", text).strip().rstrip(".")
