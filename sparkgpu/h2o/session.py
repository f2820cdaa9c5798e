"""One Spark session in local mode; its ports are bound to loopback and its files are in one folder."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.h2o.startup import Gateway, JvmSettings, catalog_class_path, jvm

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession


_GATEWAY_VARIABLES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


@contextmanager
def spark_session(
    *,
    name: str,
    threads: int,
    heap_bytes: int,
    scratch: Path,
    port_base: int,
    catalog: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[SparkSession]:
    """Start a JVM and a Spark session in it; both end with the block.

    `scratch` must be private to the user (mode 0700): it holds temporary files, shuffle data and Sparkling
    Water's login file. `catalog` opens the user's table catalog (Hive support and the site configuration of
    ``SPARK_CONF_DIR``). `meanwhile` is called while the JVM starts. Raises `DeviceError` if no JVM starts.
    """
    settings = JvmSettings(
        heap_bytes=heap_bytes,
        threads=threads,
        scratch=scratch,
        class_path=catalog_class_path() if catalog else (),
    )
    with jvm(settings, meanwhile=meanwhile) as gateway:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # used by the tasks that write the table
        conf = _settings(scratch, threads, port_base, catalog)
        with session_in(gateway, name, f"local[{threads}]", conf, catalog=catalog) as session:
            yield session


@contextmanager
def session_in(
    gateway: Gateway, name: str, master: str, settings: Mapping[str, str], *, catalog: bool = False
) -> Iterator[SparkSession]:
    """A session in the JVM behind `gateway`; it stops when the block ends."""
    os.environ["PYSPARK_GATEWAY_PORT"] = str(gateway.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = gateway.secret
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName(name).setMaster(master)
    for key, value in settings.items():
        conf.set(key, value)
    if not _has_account():
        SparkContext(conf=conf, gateway=_gateway_with_user())
    builder = SparkSession.builder.config(conf=conf)
    session = (builder.enableHiveSupport() if catalog else builder).getOrCreate()
    for variable in _GATEWAY_VARIABLES:  # no child process may connect to this JVM
        os.environ[variable] = ""  # not deleted: to set it again would move the environment
    try:
        yield session
    finally:
        session.stop()


def _has_account() -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwuid(os.getuid()))
    return False


def _gateway_with_user() -> JavaGateway:
    """Name this process's user to Hadoop, which refuses one without an account, as many containers have."""
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(str(os.getuid())))
    return gateway


SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    # Dates before 1582 mean what they say, as everywhere but in old Hive.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # `a` and `A` are two columns of the user's table.
    "spark.sql.caseSensitive": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""The settings that a prepared table relies on, for every master."""


def _settings(scratch: Path, threads: int, port_base: int, catalog: bool) -> dict[str, str]:
    return {
        **(_user_defaults() if catalog else {"spark.sql.warehouse.dir": str(scratch / "warehouse")}),
        **SQL_SETTINGS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": str(port_base + 3),
        "spark.blockManager.port": str(port_base + 4),
        "spark.port.maxRetries": "2",  # still in the lane's block, if another program was quicker
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.local.dir": str(scratch),
        # Few partitions: with the default of 200, a shuffle on one machine is mostly scheduling.
        "spark.sql.shuffle.partitions": str(max(2, threads)),
    }


def _user_defaults() -> dict[str, str]:
    """The user's ``spark-defaults.conf``, which Spark's own launcher would read."""
    folder = os.environ.get("SPARK_CONF_DIR")
    file = Path(folder) / "spark-defaults.conf" if folder else None
    if file is None or not file.is_file():
        return {}
    pairs = (line.split(None, 1) for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].startswith("spark.")}
