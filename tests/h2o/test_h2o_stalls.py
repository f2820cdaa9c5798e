"""A stuck H2O job is told from a slow one, and its cause is found."""

from __future__ import annotations

import socket
import struct
import threading
from unittest.mock import Mock

import pytest

from sparkgpu.h2o.cloud import Stall, is_quiet, shutdown_tracker, stall_of
from sparkgpu.h2o.jobs import StallWatch, cause_of

CLOSING = (
    '"FJ-1-1" daemon prio=9 tid=120 java.lang.Thread.State: WAITING\n'
    "\tat java.base@17.0.15/java.lang.Thread.join(Thread.java:1313)\n"
    "\tat app//hex.tree.xgboost.rabit.RabitTrackerH2O.waitFor(RabitTrackerH2O.java:215)\n"
    "\tat app//hex.tree.xgboost.exec.LocalXGBoostExecutor.close(LocalXGBoostExecutor.java:186)\n"
)
TRACKER = (
    '"TCP-sun.nio.ch.ServerSocketChannelImpl[/127.0.0.1:9091]" daemon prio=9 tid=182 '
    "java.lang.Thread.State: RUNNABLE\n\tat java.base@17.0.15/sun.nio.ch.Net.accept(Native Method)\n"
)
BEGINNING = (
    '"XGBoostUpdater-trees-s7" daemon prio=9 tid=183 java.lang.Thread.State: RUNNABLE\n'
    "\tat app//ai.h2o.xgboost4j.java.XGBoostJNI.RabitInit(Native Method)\n"
    "\tat app//ai.h2o.xgboost4j.java.Rabit.init(Rabit.java:75)\n"
)
GROWING = (
    '"XGBoostUpdater-trees-s7" daemon prio=9 tid=183 java.lang.Thread.State: RUNNABLE\n'
    "\tat app//ai.h2o.xgboost4j.java.XGBoostJNI.XGBoosterUpdateOneIter(Native Method)\n"
)
WAITING = '"FJ-2-1" daemon prio=9 tid=99 java.lang.Thread.State: TIMED_WAITING\n\tat Object.wait\n'


TRACKED = Stall(reason="", tracker=("127.0.0.1", 9091))


def made_cloud(*, quiet: bool | None, stall: Stall | None) -> Mock:
    """A cloud with fixed answers."""
    return Mock(is_quiet=Mock(return_value=quiet), stall=Mock(return_value=stall))


def seconds_until_it_stalls(cloud: Mock, *, within_s: int = 600, tree_s: int = 10**6) -> int | None:
    """The seconds until a job with a tree every `tree_s` seconds counts as stuck."""
    now = 0
    watch = StallWatch(lambda: float(now))
    for now in range(within_s):
        if watch.see(now // tree_s, cloud) is not None:
            return now
    return None


@pytest.mark.parametrize(
    ("quiet", "stall", "most_s"),
    [
        *(
            (quiet, TRACKED, 60) for quiet in (True, False, None)
        ),  # a closing waits; other runs load the machine
        (True, Stall(reason=""), 90),  # all threads wait
    ],
)
def test_a_stuck_job_is_found_within_a_minute_or_two(quiet: bool | None, stall: Stall, most_s: int) -> None:
    assert (seconds_until_it_stalls(made_cloud(quiet=quiet, stall=stall)) or 600) < most_s


def test_a_slow_tree_is_no_stall() -> None:
    busy = made_cloud(quiet=False, stall=Stall(reason=""))
    assert seconds_until_it_stalls(busy, within_s=3600) is None
    assert busy.stall.call_count < 100  # H2O writes the stacks to its logs
    assert seconds_until_it_stalls(made_cloud(quiet=True, stall=None)) is None
    closing = made_cloud(quiet=True, stall=TRACKED)
    assert seconds_until_it_stalls(closing, tree_s=20) is None  # progress begins the count anew


@pytest.mark.parametrize(("percent", "cores", "quiet"), [(3, 2, True), (20, 2, False), (0, 96, None)])
def test_a_node_is_quiet_below_a_quarter_of_a_core(percent: int, cores: int, quiet: bool | None) -> None:
    nodes = [{"my_cpu_pct": 0, "num_cpus": 2}, {"my_cpu_pct": percent, "num_cpus": cores}]
    assert is_quiet(nodes) is quiet


def test_stacks_tell_which_nodes_wait_and_for_what() -> None:
    closing = stall_of({"127.0.0.1:54321": [CLOSING, BEGINNING, TRACKER], "127.0.0.1:54325": [WAITING]})
    assert closing == Stall(
        reason="node 127.0.0.1:54321 waits for nodes that never started to sign off",
        tracker=("127.0.0.1", 9091),
    )
    assert stall_of({"a:1": [WAITING, GROWING], "b:1": [WAITING]}) is None
    found = stall_of({"a:1": [WAITING, BEGINNING], "b:1": [WAITING]})
    assert found == Stall(reason="no thread of a:1, b:1 works; XGBoost on a:1 waits for the other nodes")


def test_a_tracker_hears_what_xgboosts_workers_would_say() -> None:
    heard: list[tuple[int, int, bytes, bytes]] = []

    def answer(server: socket.socket) -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as stream:
                stream.write(stream.read(4))
                stream.flush()
                rank, world, length = struct.unpack("@iii", stream.read(12))
                name = stream.read(length)
                (length,) = struct.unpack("@i", stream.read(4))
                heard.append((rank, world, name, stream.read(length)))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        shutdown_tracker(server.getsockname(), 2)
        thread.join()
    assert heard == [(0, 2, b"NULL", b"shutdown"), (1, 2, b"NULL", b"shutdown")]


def test_the_cause_of_a_failed_job_is_its_deepest_one_and_its_node() -> None:
    text = (
        "Job with key $03_a failed with an exception: java.lang.RuntimeException: Error while training "
        "XGBoost model\nstacktrace: \njava.lang.RuntimeException: Error while training XGBoost model\n"
        "\tat hex.tree.xgboost.XGBoost$XGBoostDriver.buildModel(XGBoost.java:440)\n"
        "Caused by: DistributedException from localhost/127.0.0.1:54325: 'nthreads must be positive', "
        "caused by java.lang.IllegalArgumentException: nthreads must be positive\n"
        "\tat water.MRTask.getResult(MRTask.java:660)\n"
        "Caused by: java.lang.IllegalArgumentException: nthreads must be positive\n"
        "\tat water.LocalMR.<init>(LocalMR.java:30)\n"
    )
    assert cause_of(text) == (
        "Error while training XGBoost model: nthreads must be positive (on node 127.0.0.1:54325)"
    )
