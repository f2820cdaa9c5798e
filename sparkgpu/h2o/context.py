"""H2O inside a Spark session (Sparkling Water), behind a login made for this run: a lane's, or a cloud's."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ai.h2o.sparkling.H2OConf import H2OConf
    from ai.h2o.sparkling.H2OContext import H2OContext
    from pyspark.sql import SparkSession


_USER = "sparkgpu"
# What those with the login must not read. Not H2O's default list: its `/etc/*` lets deeper files through, and
# a run may be in a hidden folder, which it denies, or below /var.
_DENIED_FILES = "{/bin/*,/etc/**,/var/*,/usr/*,/proc/**}"


def start_h2o(session: SparkSession, *, name: str, scratch: Path, port_base: int, threads: int) -> H2OContext:
    """Start H2O in the session's JVM and connect its Python client.

    H2O 3.46 has published remote code executions behind its REST interface, so nobody else may reach it. It
    listens on loopback, asks for a random login (passed inside the JVM, never on a command line), and runs
    without Flow, REPL, node port and Flow proxy (see ``h2o/jars``). Each process can do this only once: a
    second context in one JVM ends the JVM.
    """
    for folder in ("h2o-log", "h2o-flows", "h2o-ice"):
        (scratch / folder).mkdir(exist_ok=True)
    conf = (
        _guarded(name, scratch)
        .setLogLevel("WARN")
        .setLogDir(str(scratch / "h2o-log"))
        .setFlowDir(str(scratch / "h2o-flows"))
        .setBasePort(port_base)
        .setNthreads(threads)
        # -disable_net closes the port between nodes, which has no login; a single node does not need it.
        .setExtraProperties(
            "-ip 127.0.0.1 -web_ip 127.0.0.1 -disable_net -disable_flow "
            f"-ice_root {scratch / 'h2o-ice'} -file_deny_glob {_DENIED_FILES}"
        )
    )
    return _connected(conf)


def start_cloud(
    session: SparkSession, *, name: str, scratch: Path, num_nodes: int, threads: int, loopback: bool
) -> H2OContext:
    """Start one H2O node in each of `num_nodes` executors and connect its Python client to the cloud.

    Its REST interface asks for the login, and the nodes use TLS with keys made for this run. XGBoost's own
    connections during training stay open, since H2O cannot protect them, so executors belong in a private
    network (SECURITY.md). The driver is not a node of the cloud.
    """
    # A node's REST interface listens on all interfaces, unless all nodes are on this machine.
    listening = "-web_ip 127.0.0.1 " if loopback else ""
    # Sparkling Water would leave Spark's whole Hadoop configuration, keys of object stores too, in a file on
    # each executor. H2O reads nothing from there.
    (hadoop := scratch / "h2o-hadoop.xml").write_text("<configuration/>", encoding="ascii")
    conf = (
        _guarded(name, scratch)
        .setNumH2OWorkers(num_nodes)
        .setNthreads(threads)
        .setLogLevel("INFO")  # logs go to each executor's own working folder
        .setHdfsConf(str(hadoop))
        .setInternalSecureConnectionsEnabled()
        # The driver gives up a cloud that lost a node, with its application; Sparkling Water would end the
        # JVM.
        .setKillOnUnhealthyClusterDisabled()
        .setExtraProperties(
            f"{listening}-disable_flow -allow_insecure_xgboost -file_deny_glob {_DENIED_FILES}"
        )
    )
    return _connected(conf)


def _guarded(name: str, scratch: Path) -> H2OConf:
    """The settings of every H2O that we start: no REPL, and a login in a file that only its owner reads."""
    # Not through the package `pysparkling`: its import starts another Python to compare versions.
    from ai.h2o.sparkling.H2OConf import H2OConf

    password, login = secrets.token_urlsafe(32), scratch / "h2o-login"
    with os.fdopen(os.open(login, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{_USER}: {password}\n")
    return (
        H2OConf()
        .setInternalClusterMode()
        .setCloudName(name)
        .setReplDisabled()
        .setHashLoginEnabled()
        .setLoginConf(str(login))
        .setUserName(_USER)
        .setPassword(password)
    )


def _connected(conf: H2OConf) -> H2OContext:
    from ai.h2o.sparkling.H2OContext import H2OContext
    from h2o.utils.progressbar import ProgressBar

    # The client first polls each job every 0.2 s; a trial has a dozen shorter jobs.
    ProgressBar.MIN_PROGRESS_CHECK_INTERVAL = 0.02
    # The connection's banner goes to the lane's log, like all output of this process.
    return H2OContext.getOrCreate(conf)


@contextlib.contextmanager
def stopping(context: H2OContext) -> Iterator[H2OContext]:
    """Stop H2O at the end of the block, before its session ends."""
    try:
        yield context
    finally:
        context.stop()
