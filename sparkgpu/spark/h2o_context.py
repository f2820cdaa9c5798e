"""One H2O context inside a lane's Spark session: loopback only, behind a login made for this run."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ai.h2o.sparkling.H2OContext import H2OContext
    from pyspark.sql import SparkSession

_USER = "sparkgpu"
# H2O's own list less its last entry, every path with a hidden folder in it: runs may lie in one.
_DENIED_FILES = "{/bin/*,/etc/*,/var/*,/usr/*,/proc/*}"


def start_h2o(session: SparkSession, *, name: str, scratch: Path, port_base: int, threads: int) -> H2OContext:
    """Start H2O in the session's JVM and connect its Python client.

    H2O 3.46 has published remote code executions behind its REST interface, so nothing of it may be
    reachable: it listens on loopback, asks for a random login (handed over inside the JVM, never on a
    command line), and runs without Flow, REPL, node port and Flow proxy (see ``jvm/``). Each process can
    do this once: a second context in one JVM's life ends the JVM.
    """
    # Not through the package `pysparkling`: importing that starts another Python to compare versions.
    from ai.h2o.sparkling.H2OConf import H2OConf
    from ai.h2o.sparkling.H2OContext import H2OContext
    from h2o.utils.progressbar import ProgressBar

    password = secrets.token_urlsafe(32)
    login = scratch / "h2o-login"
    descriptor = os.open(login, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{_USER}: {password}\n")
    for folder in ("h2o-log", "h2o-flows", "h2o-ice"):
        (scratch / folder).mkdir(exist_ok=True)
    conf = (
        H2OConf()
        .setInternalClusterMode()
        .setBasePort(port_base)
        .setCloudName(name)
        .setNthreads(threads)
        .setReplDisabled()
        .setLogLevel("WARN")
        .setLogDir(str(scratch / "h2o-log"))
        .setFlowDir(str(scratch / "h2o-flows"))
        .setHashLoginEnabled()
        .setLoginConf(str(login))
        .setUserName(_USER)
        .setPassword(password)
        # -disable_net leaves out the port between nodes, which no login guards; one node needs none.
        .setExtraProperties(
            "-ip 127.0.0.1 -web_ip 127.0.0.1 -disable_net -disable_flow "
            f"-ice_root {scratch / 'h2o-ice'} -file_deny_glob {_DENIED_FILES}"
        )
    )
    # The client asks after each job at first every 0.2 s; a trial has a dozen jobs shorter than that.
    ProgressBar.MIN_PROGRESS_CHECK_INTERVAL = 0.02
    # The connection's banner goes to the lane's log, like everything else this process prints.
    return H2OContext.getOrCreate(conf)


@contextlib.contextmanager
def stopping(context: H2OContext) -> Iterator[H2OContext]:
    """Stop H2O at the end of the block, before the session it lives in goes."""
    try:
        yield context
    finally:
        context.stop()
