"""What the nodes of an H2O cloud are doing, from their REST interface: processor time and stacks.

H2O 3.46 waits forever, and logs nothing, if XGBoost's set-up fails on one of several nodes. The model's
driver closes the training and waits until every node has signed off at the tracker of XGBoost's workers
(``RabitTrackerH2O.waitFor``), but the failed node never signed on. Only the nodes' stacks show this.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import h2o
from h2o.exceptions import H2OError

# Share of a core. H2O's own heartbeat and our questions take less; a thread that works takes more.
_QUIET_CORES = 0.25
# H2O reports its share of the machine in whole percent: on more cores, one busy thread may show as 0.
_MOST_CORES_TOLD = 50
_FRESH_S = 2.0
_ANSWER_S = 10.0
_MAGIC = 0xFF99
# Threads in native code that wait nevertheless: for other nodes, or for the reader of the stacks.
_NATIVE_WAITS = ("Rabit.init", "JStackCollectorTask", "ServerSocketChannelImpl.accept", "EPoll.wait")
_TRACKER = re.compile(r'"TCP-[^"]*\[[^"/]*/\[?([0-9a-fA-F.:]+?)\]?:(\d+)\]"')


@dataclass(frozen=True, kw_only=True)
class Stall:
    """What all nodes wait for; `tracker` is set if H2O waits for XGBoost's workers to sign off there."""

    reason: str
    tracker: tuple[str, int] | None = None


class Cloud:
    """The cloud that this process's H2O client is connected to. Safe to use from several threads.

    `nodes` are their addresses with ports, and each has `threads` threads.
    """

    def __init__(self) -> None:
        nodes = h2o.api("GET /3/Cloud", data={"skip_ticks": True}).nodes
        self.nodes = frozenset(str(node["ip_port"]) for node in nodes)
        self.threads = max(int(node["nthreads"]) for node in nodes)
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._is_quiet: bool | None = None

    def is_quiet(self) -> bool | None:
        """Whether no node has used its processor since the last question; None if that is unknown."""
        with self._lock:
            # H2O measures since the last question from anyone, and starts again each second.
            if time.monotonic() - self._asked >= _FRESH_S:
                self._is_quiet = is_quiet(h2o.api("GET /3/Cloud").nodes)
                self._asked = time.monotonic()
            return self._is_quiet

    def made_progress(self) -> bool:
        """Whether its nodes have used their processors, as far as is known; False if no node answers."""
        try:
            return self.is_quiet() is not True
        except (OSError, H2OError):
            return False

    def stall(self) -> Stall | None:
        """What the cloud waits for; None while one of its threads works."""
        traces = h2o.api("GET /3/JStack")["traces"]
        return stall_of({str(trace["node"]): trace["thread_traces"] for trace in traces})


def is_quiet(nodes: Iterable[Mapping[str, Any]]) -> bool | None:
    """Read `is_quiet` from the answer of ``/3/Cloud``; None if a node reports nothing or too coarsely."""
    shares = [(int(node["my_cpu_pct"]), int(node["num_cpus"])) for node in nodes]
    if any(percent * cores / 100 >= _QUIET_CORES for percent, cores in shares):
        return False
    if any(percent < 0 or cores > _MOST_CORES_TOLD for percent, cores in shares):
        return None
    return True


def stall_of(stacks: Mapping[str, Sequence[str]]) -> Stall | None:
    """What nodes with these stacks (node to its threads' traces) wait for; None while a thread works."""
    for node, traces in stacks.items():
        if any("RabitTrackerH2O.waitFor" in trace for trace in traces):
            found = next((match for trace in traces if (match := _TRACKER.match(trace))), None)
            return Stall(
                reason=f"node {node} waits for nodes that never started to sign off",
                tracker=(found.group(1), int(found.group(2))) if found else None,
            )
    if any(_works(trace) for traces in stacks.values() for trace in traces):
        return None
    waiting = [node for node, traces in stacks.items() if any("Rabit.init" in trace for trace in traces)]
    at = f"; XGBoost on {', '.join(waiting)} waits for the other nodes" if waiting else ""
    return Stall(reason=f"no thread of {', '.join(stacks)} works{at}")


def _works(trace: str) -> bool:
    """Whether this is a running thread of H2O or XGBoost."""
    head, _, frames = trace.partition("\n")
    return (
        head.startswith(('"FJ-', '"XGBoostUpdater'))
        and head.rstrip().endswith("RUNNABLE")
        and not any(wait in frames for wait in _NATIVE_WAITS)
    )


def shutdown_tracker(tracker: tuple[str, int], num_workers: int) -> None:
    """Tell a tracker, in XGBoost's protocol, that this many workers have ended, so that H2O stops waiting.

    H2O then fails the job with the error of the failed node. Raises `OSError` if nothing answers.
    """
    for rank in range(num_workers):
        with closing(socket.create_connection(tracker, timeout=_ANSWER_S)) as connection:
            connection.sendall(struct.pack("@i", _MAGIC))
            answer = connection.recv(4, socket.MSG_WAITALL)
            if answer != struct.pack("@i", _MAGIC):
                raise OSError(f"{tracker[0]}:{tracker[1]} is not a tracker of XGBoost's workers")
            texts = (b"NULL", b"shutdown")
            connection.sendall(
                struct.pack("@ii", rank, num_workers)
                + b"".join(struct.pack("@i", len(text)) + text for text in texts)
            )
