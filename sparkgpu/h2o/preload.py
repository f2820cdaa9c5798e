"""Before a process with a JVM starts threads: the environment is complete, and all they use is imported.

Two threads that import for the first time at the same time can wait for each other forever: an import locks
its package, the package's C code may lock more, and Python detects only cycles of its own locks. So only the
main thread imports anything new. It does so here, while the JVM starts and before the first other thread
starts. Some packages import more when they are called; the list includes those imports. A test watches every
import of every process of a run.
"""

from __future__ import annotations

import sys
from importlib import import_module

from sparkgpu.core.host.interpreter import complete_environment

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
)


def prepare_environment() -> None:
    """Set Spark's and the libraries' variables that are not set yet. Call it before any thread starts."""
    complete_environment(_VARIABLES)


def preload(*, h2o: bool) -> None:
    """Import what Spark needs in a run, and what H2O needs if it will start."""
    for name in (*_ROWS, *_SPARK, *(_H2O if h2o else ())):
        import_module(name)


def preload_for_rows() -> None:
    """Import what threads need that read and write rows without Spark."""
    for name in _ROWS:
        import_module(name)
