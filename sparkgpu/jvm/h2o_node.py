"""H2O in a lane's own JVM: a cloud of this one node, behind a login made for this run.

For lanes whose table needs no Spark. It starts as soon as its JVM runs, with the arguments that Sparkling
Water would give it. H2O 3.46 has published remote code executions behind its REST interface, so nobody else
may reach it: it listens on loopback, asks for a random login (passed inside the JVM, never on a command
line), and runs without Flow, REPL and node port. Each JVM can do this only once.
"""

from __future__ import annotations

import encodings.ascii
import encodings.idna  # noqa: F401  what a thread needs that must load nothing: files and sockets load these
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from sparkgpu.jvm.login import DENIED_FILES, USER, Login, make_login
from sparkgpu.jvm.startup import Gateway, JvmSettings, StartingJvm, launch_jvm

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView


@contextmanager
def h2o_alone(
    settings: JvmSettings,
    *,
    name: str,
    port_base: int,
    starting: StartingJvm | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[JVMView]:
    """A JVM with nothing but H2O in it, called `name`, and this process's client; both end with the block.

    Yields py4j's view of the JVM. `settings.scratch` must be private to the user (mode 0700): it holds the
    login. `meanwhile` is called while Java and H2O start. `starting` is a JVM that was launched before, with
    these settings. Raises `DeviceError` if no JVM starts.
    """
    starting = starting or launch_jvm(settings)
    with ThreadPoolExecutor(1) as thread:
        begun = thread.submit(_start, starting, settings, name, port_base)
        try:
            meanwhile()
            node = begun.result()
        except BaseException:
            starting.kill()
            raise
    try:
        _connect_client(node)
        yield node.java
    finally:
        node.gateway.close()


@dataclass(frozen=True, kw_only=True)
class _Node:
    """H2O that answers on `port` of loopback."""

    gateway: Gateway
    java: JVMView
    port: int
    login: Login


def _start(starting: StartingJvm, settings: JvmSettings, name: str, port_base: int) -> _Node:
    """Start H2O as soon as its JVM runs. It is called in a thread, so it imports nothing."""
    gateway = starting.ready()
    scratch = settings.scratch
    login = make_login(scratch)
    folders = {option: scratch / f"h2o-{option}" for option in ("log", "flows", "ice")}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    arguments = [
        "-name", name, "-nthreads", str(settings.threads), "-baseport", str(port_base), "-embedded", "-quiet",
        "-log_level", "WARN", "-log_dir", str(folders["log"]), "-flow_dir", str(folders["flows"]),
        # -disable_net closes the port between nodes, which has no login; a single node does not need it.
        "-ip", "127.0.0.1", "-web_ip", "127.0.0.1", "-disable_net", "-disable_flow",
        "-ice_root", str(folders["ice"]), "-file_deny_glob", DENIED_FILES,
        "-hash_login", "-login_conf", str(login.file), "-user_name", USER,
    ]  # fmt: skip
    client = ClientServer(
        java_parameters=JavaParameters(port=gateway.port, auth_token=gateway.secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    java = client.jvm
    texts = client.new_array(java.java.lang.String, len(arguments))
    for place, argument in enumerate(arguments):
        texts[place] = argument
    java.water.H2OStarter.start(texts, True)
    return _Node(gateway=gateway, java=java, port=int(java.water.H2O.API_PORT), login=login)


def _connect_client(node: _Node) -> None:
    import h2o
    from h2o.utils.progressbar import ProgressBar

    # The client first polls each job every 0.2 s; a trial has a dozen shorter jobs.
    ProgressBar.MIN_PROGRESS_CHECK_INTERVAL = 0.02
    h2o.connect(url=f"http://127.0.0.1:{node.port}", auth=(USER, node.login.password), verbose=False)


@contextmanager
def native_predictions(java: JVMView) -> Iterator[None]:
    """Within the block, H2O in this JVM predicts with XGBoost's own library instead of in Java.

    The library first converts the rows, and uses only the trees' threads. That is faster if each row passes
    thousands of trees, as with many classes, and slower with hundreds of trees over many one-hot columns.
    """
    key = "sys.ai.h2o.xgboost.predict.native.enable"  # H2O reads it for each table that it scores
    java.java.lang.System.setProperty(key, "true")
    try:
        yield
    finally:
        java.java.lang.System.clearProperty(key)
