"""Trees in an H2O cloud of two executors, by its name: who may ask its nodes, and small tables."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from running import COMMAND, finished, started, status_without_login, write_adult, write_table
from standalone import Cluster, spark_environment, standalone

from sparkgpu.core.rundir.events import TRAINING, EventReader

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TREES = (
    "--set", 'models=["trees"]', "--set", "trees.engine=h2o-xgboost", "--set", "trees.ntrees=20",
    "--set", "cluster.executors=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def on_nodes(trial: dict[str, Any]) -> list[str]:
    """The trial's notes on where it trained."""
    return [note for note in trial["notes"] if "H2O node" in note]


def tls(port: int) -> bool:
    """Whether a port answers the greeting of TLS with a record of TLS: a handshake, or a refusal."""
    said = ssl.MemoryBIO()
    greeting = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        greeting.do_handshake()
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as node:
        node.sendall(said.read())
        return node.recv(2) in (b"\x16\x03", b"\x15\x03")
    return False


def test_a_node_asks_for_the_login_and_speaks_tls_with_others_and_no_trial_waits_for_it_forever(
    cluster: Cluster, tmp_path: Path
) -> None:
    # Categories, and one row group per split: H2O put no validation rows on one of the nodes.
    table, target, least = write_adult(tmp_path)
    before = cluster.applications()
    doors: dict[int, tuple[int, bool]] = {}
    command = cluster.submit(table, "--target", target, *TREES)
    with started(command, tmp_path / "out", tmp_path, spark_environment()) as run:
        events = EventReader(run.paths.lane(0).events("trees"))
        while run.process.poll() is None:
            if any(event.text == TRAINING for event in events.new()):
                logs = (log for app in cluster.applications() - before for log in app.rglob("*-3-info.log"))
                ports = [int(log.name.split("_")[2].partition("-")[0]) for log in logs]
                doors = {port: (status_without_login(port, "/3/Cloud"), tls(port + 1)) for port in ports}
            time.sleep(0.5)
        assert run.wait(1) == 0, run.stdout + run.stderr
    assert list(doors.values()) == [(401, True), (401, True)]
    (trial,) = run.metrics["trials"]
    assert trial["metrics"]["test"]["roc_auc"] > least - 0.02
    assert on_nodes(trial) in ([], ["trained on one of 2 H2O nodes: H2O put no rows on some of the others"])
    assert run.left_behind() == []


def test_a_small_table_gives_the_model_of_one_lane_and_says_so(cluster: Cluster, tmp_path: Path) -> None:
    table = write_table("wine", tmp_path)
    on_cluster = finished(
        cluster.submit(table, "--target", "target", *TREES),
        tmp_path / "cluster", tmp_path, within_s=500, environ=spark_environment(),
    )  # fmt: skip
    alone = finished(
        [*COMMAND, "run", table, "--target", "target", "--cpu-lanes", "1", *TREES[:-2]],
        tmp_path / "alone", tmp_path, within_s=300,
    )  # fmt: skip
    (trial,), (other,) = on_cluster.metrics["trials"], alone.metrics["trials"]
    assert trial["metrics"] == other["metrics"]
    rows = on_cluster.metrics["data"]["splits"]["train"]
    assert on_nodes(trial) == [f"trained on one of 2 H2O nodes: {rows} training rows are too few for more"]
