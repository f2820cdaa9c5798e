"""Whether the nodes of an H2O cloud work, from the stacks that their REST interface shows.

H2O 3.46 waits forever, and logs nothing, if XGBoost's set-up fails on one of several nodes: all others, and
the driver of the training, wait for the failed one. Only the nodes' stacks show this.
"""

from __future__ import annotations

import threading
import time

import h2o
from h2o.exceptions import H2OError

LOOK_EVERY_S = 20.0  # H2O writes the stacks that we ask for to its logs
# Threads in native code that wait nevertheless: for other nodes, or for the reader of the stacks.
_NATIVE_WAITS = ("Rabit.init", "JStackCollectorTask", "ServerSocketChannelImpl.accept", "EPoll.wait")


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
