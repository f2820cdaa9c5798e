"""Which Spark cluster a run uses, if any, and with which Spark settings.

The configuration names it (``cluster.master``), or a spark-submit around this process, whose JVM is then
asked through its py4j port and stays idle: a run starts its own JVM.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparkgpu.core.config.keys import ClusterConfig, expanded
from sparkgpu.core.errors import ConfigError

H2O_GPUS = "-Dsys.ai.h2o.xgboost.multinode.gpu.enabled=true"
"""What `hex.tree.xgboost.XGBoost.allowMultiGPU` reads."""

_ANSWER_S = 30.0
_LOOPBACK = ("127.", "localhost", "::1")
# Settings that describe the outer JVM itself, not the application.
_NOT_HANDED_ON = ("spark.app.", "spark.submit.", "spark.repl.", "spark.driver.extra", "spark.master")


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The master, and the application's Spark settings, including ``spark.driver.host``."""

    master: str
    spark: Mapping[str, str]


def cluster_settings(config: ClusterConfig, environ: Mapping[str, str]) -> ClusterSettings | None:
    """The cluster of this run; None for this machine.

    Raises `ConfigError` for a way of submitting that cannot work.
    """
    outer = _submitted(environ)
    master = config.master or outer.get("spark.master", "local")
    if master.startswith("local"):
        return None
    if not re.match(r"(spark|k8s)://|yarn$", master):
        hint = f" Did you mean spark://{master}?" if ":" in master and "//" not in master else ""
        raise ConfigError(
            f"cluster.master = {master!r} is not a Spark master.{hint} Write spark://HOST:PORT, yarn, "
            "k8s://URL or local."
        )
    if outer.get("spark.submit.deployMode") == "cluster":
        raise ConfigError(
            "--deploy-mode cluster: the parent process of a run must stay on the machine that holds the run "
            "directory. Submit with --deploy-mode client."
        )
    kept = {
        name: value
        for name, value in outer.items()
        if name.startswith("spark.") and not name.startswith(_NOT_HANDED_ON)
    }
    spark = {**kept, **expanded(config.spark, environ)}
    host = spark.get("spark.driver.host", "")
    if not host or (host.startswith(_LOOPBACK) and not _is_local(master)):
        spark["spark.driver.host"] = _own_address(master)
    if spark.get("spark.driver.bindAddress", "").startswith(_LOOPBACK) and not _is_local(master):
        del spark["spark.driver.bindAddress"]
    if config.h2o_gpus:
        options = spark.get("spark.executor.extraJavaOptions", "")
        spark["spark.executor.extraJavaOptions"] = f"{options} {H2O_GPUS}".strip()
    return ClusterSettings(master=master, spark=spark)


def _submitted(environ: Mapping[str, str]) -> dict[str, str]:
    """The properties of the JVM that spark-submit started around this process."""
    port, secret = environ.get("PYSPARK_GATEWAY_PORT"), environ.get("PYSPARK_GATEWAY_SECRET")
    if not port or not secret:
        return {}
    from py4j.java_gateway import GatewayParameters, JavaGateway
    from py4j.protocol import Py4JError, Py4JNetworkError

    parameters = GatewayParameters(port=int(port), auth_token=secret, read_timeout=_ANSWER_S)
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        properties = gateway.jvm.java.lang.System.getProperties()
        return {str(name): str(properties.getProperty(name)) for name in properties.stringPropertyNames()}
    except (Py4JError, Py4JNetworkError, OSError):  # the variables are left over from a JVM that has ended
        return {}
    finally:
        gateway.close()


def _is_local(master: str) -> bool:
    return (urlsplit(master).hostname or "").startswith(_LOOPBACK)


def _own_address(master: str) -> str:
    """This machine's address on the route to the master; executors reach it there."""
    found = urlsplit(master.removeprefix("k8s://"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((found.hostname or "192.0.2.1", found.port or 9))  # sends nothing
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])
