"""Follows a job inside H2O: its progress, why it failed and, in a cloud, whether it is stuck.

H2O 3.46 waits forever, and logs nothing, if XGBoost's set-up fails on one of several nodes: all others, and
the driver of the training, wait for the failed one. Only the nodes' stacks show this. A job is stuck if it
makes no progress and these only wait, at several looks. A slow tree is never taken for stuck.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import h2o
from h2o.exceptions import H2OConnectionError, H2OError

from sparkgpu.core.errors import TrialError

_CANCEL_S = 0.1
LOOK_EVERY_S = 20.0  # H2O writes the stacks that we ask for to its logs
STUCK_S = 60.0
# Threads in native code that wait nevertheless: for other nodes, or for the reader of the stacks.
_NATIVE_WAITS = ("Rabit.init", "JStackCollectorTask", "ServerSocketChannelImpl.accept", "EPoll.wait")
_MOST_LETTERS = 400

_CLASS = r"(?:[\w$]+\.)+[\w$]*(?:Exception|Error|Throwable)[\w$]*"
_CAUSED_BY = re.compile(rf"^\s*Caused by: ({_CLASS})(?:: (.*))?$", re.MULTILINE)
_ON_NODE = re.compile(r"DistributedException from (?:[^/\s]*/)?([^\s:]+:\d+)")


class StalledError(TrialError):
    """H2O waits forever; its cloud is useless for further trials."""


class Cloud:
    """The cloud that this process's H2O client is connected to. Safe to use from several threads.

    `nodes` are their addresses with ports, and each has `threads` threads.
    """

    def __init__(self) -> None:
        nodes = h2o.api("GET /3/Cloud", data={"skip_ticks": True}).nodes
        self.nodes = frozenset(str(node["ip_port"]) for node in nodes)
        self.threads = max(int(node["nthreads"]) for node in nodes)
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._works = True

    def works(self) -> bool:
        """Whether a thread of any node worked when their stacks were last read, at most seconds ago."""
        with self._lock:
            if time.monotonic() - self._looked >= LOOK_EVERY_S:
                traces = h2o.api("GET /3/JStack")["traces"]
                self._works = any(is_working(text) for node in traces for text in node["thread_traces"])
                self._looked = time.monotonic()
            return self._works

    def made_progress(self) -> bool:
        """As `works`; False if no node answers."""
        try:
            return self.works()
        except (OSError, H2OError):
            return False


def is_working(trace: str) -> bool:
    """Whether this is a running thread of H2O or XGBoost."""
    head, _, frames = trace.partition("\n")
    return (
        head.startswith(('"FJ-', '"XGBoostUpdater'))
        and head.rstrip().endswith("RUNNABLE")
        and not any(wait in frames for wait in _NATIVE_WAITS)
    )


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
            raise StalledError(
                f"{self._trial}: H2O is stuck: no thread of {', '.join(sorted(cloud.nodes))} works; its logs "
                "are in the executors' folders."
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
