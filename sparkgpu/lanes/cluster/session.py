"""A Spark session on a cluster, and facts about its executors."""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.core.config.keys import SECRET_NAME
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.plan.executors import Executor
from sparkgpu.core.words import counted
from sparkgpu.h2o.session import SQL_SETTINGS, session_in
from sparkgpu.h2o.startup import FASTER_ARROW, FRONT_JAR, H2O_SETTINGS, JvmSettings, assembly_jar, jvm
from sparkgpu.prepare.pyspark_internals import scala_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTLED_S = 2.0  # without another executor
_WAIT_S = 60.0
_ANSWER_S = 10.0
_LOOK_EVERY_S = 0.2
_CLASS_PATH = "spark.executor.extraClassPath"
_EXPORTS = "--add-exports=java.base/sun.net.www.protocol.http=ALL-UNNAMED"
_MEMORY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@contextmanager
def cluster_session(
    *,
    name: str,
    master: str,
    spark: Mapping[str, str],
    scratch: Path,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[SparkSession]:
    """Start our own JVM as the driver of an application on the cluster; both end with the block.

    `spark` holds the user's Spark settings. They override ours, except those that a run relies on.
    `meanwhile` is called while the JVM starts. Raises `DeviceError` if the cluster cannot be reached.
    """
    settings = JvmSettings(
        heap_bytes=_bytes(spark.get("spark.driver.memory", "1g")),
        threads=os.cpu_count() or 1,
        scratch=scratch,
        class_path=_class_path(spark, os.environ),
    )
    _check_master(master)
    address = spark["spark.driver.host"]
    with jvm(settings, address=address, meanwhile=meanwhile) as gateway:
        os.environ["PYSPARK_PYTHON"] = spark.get(
            "spark.pyspark.python", os.environ.get("PYSPARK_PYTHON", sys.executable)
        )
        with session_in(gateway, name, master, _settings(spark, scratch)) as session:
            yield session


def _check_master(master: str) -> None:
    """Check that a standalone master answers; Spark itself takes two minutes to notice that none does."""
    if not master.startswith("spark://"):
        return
    refusals = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
            return
        except (OSError, ValueError) as error:
            refusals.append(f"{place}: {error}")
    raise DeviceError(
        f"no Spark master answers at {master} ({'; '.join(refusals)}). Check its address and that it "
        "is running."
    )


def _class_path(spark: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """More class path for the driver: the configuration of Hadoop and YARN, and the jars asked for."""
    folders = [environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if environ.get(name)]
    asked = spark.get("spark.jars", "").split(",")
    jars = [name.removeprefix("file://").removeprefix("file:") for name in asked]
    return [*dict.fromkeys(folders), *(jar for jar in jars if jar.startswith("/"))]


def _settings(spark: Mapping[str, str], scratch: Path) -> dict[str, str]:
    options = spark.get("spark.executor.extraJavaOptions", "")
    missing = (needed for needed in (_EXPORTS, *H2O_SETTINGS, *FASTER_ARROW) if needed not in options)
    return {
        "spark.ui.enabled": "false",
        "spark.redaction.regex": SECRET_NAME,  # what Spark hides in its event log and its pages
        "spark.local.dir": str(scratch),
        # Every machine uses the same install. So no executor fetches 240 MB, and driver and executors load
        # Sparkling Water the same way; otherwise they could not read each other's tasks.
        **spark,
        **SQL_SETTINGS,
        # Our own classes first, as in the driver: they shut doors of H2O's.
        _CLASS_PATH: f"{FRONT_JAR}:{spark.get(_CLASS_PATH, assembly_jar())}",
        "spark.ui.showConsoleProgress": "false",
        # The H2O cloud and the network's ranks live in executors, so none may come, go or run twice.
        "spark.dynamicAllocation.enabled": "false",
        "spark.speculation": "false",
        "spark.executor.extraJavaOptions": " ".join([options, *missing]).strip(),
        # Refuse ranks that do not all fit after seconds, not after ten minutes.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "3s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "2",
    }


def _bytes(text: str) -> int:
    """Read an amount of memory in Spark's notation (``4g``); without a unit it is in MiB."""
    digits, unit = text.rstrip("bB"), "m"
    if digits and digits[-1].lower() in _MEMORY:
        digits, unit = digits[:-1], digits[-1].lower()
    return int(digits) * _MEMORY[unit]


def await_executors(
    session: SparkSession, *, wanted: int | None, settled_s: float | None = None
) -> tuple[Executor, ...]:
    """Wait until `wanted` executors have registered, or until none has come for `settled_s` seconds.

    Raises `DeviceError` after a minute, with the number that registered.
    """
    deadline = time.monotonic() + _WAIT_S
    if settled_s is None:
        settled_s = math.inf if wanted else _SETTLED_S
    found: tuple[Executor, ...] = ()
    settled = time.monotonic()
    while True:
        now = executors_of(session)
        if len(now) != len(found):
            found, settled = now, time.monotonic()
        if found and (len(found) >= (wanted or math.inf) or time.monotonic() - settled > settled_s):
            return found
        if time.monotonic() > deadline:
            master = session.sparkContext.master
            asked = f", not the {wanted} of cluster.executors" if wanted else ""
            raise DeviceError(
                f"{master} gave this application {counted(len(found), 'executor')} within {_WAIT_S:.0f} s"
                f"{asked}. Check that its workers are up and have the cores, memory and GPUs that the "
                "spark.executor settings ask for."
            )
        time.sleep(_LOOK_EVERY_S)


def executors_of(session: SparkSession) -> tuple[Executor, ...]:
    """The living executors, ordered by id."""
    listed = scala_context(session).statusStore().executorList(True)
    task_cpus = int(session.sparkContext.getConf().get("spark.task.cpus", "1") or 1)
    found = []
    for position in range(listed.size()):
        executor = listed.apply(position)
        host = executor.hostPort().rpartition(":")[0]
        if executor.id() == "driver" or not host:  # an executor has a host as soon as it is usable
            continue
        gpus = executor.resources().get("gpu")
        addresses = tuple(gpus.get().addresses()) if gpus.isDefined() else ()
        found.append(
            Executor(
                id=executor.id(),
                host=host,
                cores=executor.totalCores(),
                task_cpus=task_cpus,
                gpus=addresses,
            )
        )
    return tuple(sorted(found, key=lambda executor: int(executor.id)))


def check_executors(session: SparkSession, executors: Sequence[Executor], folder: Path) -> None:
    """Check that executors have our packages and see the run directory.

    Raises `DeviceError` with the first host that lacks one of them.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    probe = folder / ".probe"
    probe.write_text("sparkgpu", encoding="ascii")
    tasks = sum(executor.slots for executor in executors)
    try:
        answers = (
            session.sparkContext.parallelize(range(tasks), tasks)
            .mapPartitions(_missing(str(probe), str(assembly_jar())))
            .collect()
        )
    except (Py4JJavaError, PySparkException) as error:
        lacks_package = "ModuleNotFoundError" in str(error)
        raise DeviceError(
            "the executors cannot run sparkgpu: "
            + ("their Python lacks the package" if lacks_package else str(error).strip().splitlines()[0])
            + ". Install it there under the same path as here, and set PYSPARK_PYTHON to its Python (now "
            + f"{os.environ['PYSPARK_PYTHON']})."
        ) from None
    finally:
        probe.unlink()
    for host, missing in answers:
        if missing == str(probe):
            raise DeviceError(
                f"--out {folder}: the executor on {host} does not see it. Name a folder that all machines "
                "share."
            )
        if missing:
            raise DeviceError(
                f"the executor on {host} has no {missing}. Install sparkgpu under the same path on every "
                "machine, or name that file's path in spark.executor.extraClassPath."
            )


def _missing(*files: str) -> Callable[[Iterable[int]], Iterator[tuple[str, str]]]:
    """The work of a task: its host, and the first of the files that it does not see."""

    def look(rows: Iterable[int]) -> Iterator[tuple[str, str]]:
        yield socket.gethostname(), next((file for file in files if not Path(file).is_file()), "")

    return look
