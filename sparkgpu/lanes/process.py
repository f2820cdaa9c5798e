"""What the processes of a run share, a lane's workers and the driver on a cluster: how they begin and end.

Before one of them starts a thread, its environment is complete, and all that threads use is imported. Two
threads that import for the first time at the same time can wait for each other forever: an import locks its
package, the package's C code may lock more, and Python detects only cycles of its own locks. So only the main
thread imports anything new, while the JVM starts. Some packages import more when they are called; the lists
include those imports. A test watches every import of every process of a run.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TypeVar

from sparkgpu.core.errors import described
from sparkgpu.core.host.interpreter import complete_environment, importing
from sparkgpu.core.host.processes import die_with_parent
from sparkgpu.core.host.watchdog import dump_stacks_on_signal
from sparkgpu.core.rundir.files import write_json

ValueT = TypeVar("ValueT")

# Spark's Python side sets these, also while other threads run.
_VARIABLES = {
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_GATEWAY_PORT": "",
    "PYSPARK_GATEWAY_SECRET": "",
    "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
}
_ROWS = (
    "encodings.cp437",  # names in zip archives, such as the demo's
    "encodings.utf_8_sig",  # CSV files may begin with a mark
    "encodings.idna",  # names of hosts, such as that of Spark's Python worker
    "pandas",  # pyarrow's C code imports it in the thread that makes the first array
    "pyarrow.acero",
    "pyarrow.csv",
    "pyarrow.json",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "sparkgpu.prepare.prepare",
    "sparkgpu.prepare.to_parquet",
)
_SPARK = (
    "distutils.version",  # pyspark compares versions with it
    "pyspark.ml.feature",
    "pyspark.ml.pipeline",
    "pyspark.sql.functions",
    "pyspark.sql.pandas.functions",
    "pyspark.sql.pandas.map_ops",
)
_H2O = (
    "pkg_resources",  # Sparkling Water checks with it whether it runs on Databricks
    "encodings.ascii",
    "sparkling_water",
    "h2o.estimators",
    "ai.h2o.sparkling.H2OConf",
    "ai.h2o.sparkling.H2OContext",
    "sparkgpu.h2o.context",
    "sparkgpu.h2o.engine",
)


def begin(parent: int) -> None:
    """Before any thread: end with the process `parent`, answer with stacks, complete the environment.

    A batch system sends SIGTERM to all processes at once. Only the run's own obeys it: it has networks saved
    first. What this process starts does not inherit that.
    """
    die_with_parent(parent)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    dump_stacks_on_signal()
    complete_environment(_VARIABLES)


def import_for_threads(*, spark: bool, h2o: bool = False) -> None:
    """Import what other threads will use, before the first of them starts."""
    with importing():
        for name in (*_ROWS, *(_SPARK if spark else ()), *(_H2O if h2o else ())):
            import_module(name)


def in_background(function: Callable[[], ValueT]) -> Future[ValueT]:
    """Run `function` in a thread of its own."""
    return ThreadPoolExecutor(max_workers=1).submit(function)


def give_up(error: BaseException, files: Iterable[Path]) -> NoReturn:
    """Write the reason for the parent to `files` and end this process; its JVM ends with it."""
    traceback.print_exception(error)
    for file in files:
        with suppress(OSError):  # of a disk that is full or gone; the parent sees that, too
            write_json(file, described(error))
    end(1)


def end(status: int) -> NoReturn:
    """End this process at once: threads of native libraries can keep an interpreter alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
