"""Imports, in one thread and one order, what the threads of a process with a JVM are going to use.

Two threads that import for the first time at once can wait for each other for ever: a package in the middle
of its import is locked, and so is what its C code guards, and Python finds only circles of its own locks. So
no thread but the main one imports anything new. The main thread does it here, while the JVM starts and
before the first other thread does. Packages that import something more when they are called are in the list
with what they import; a test watches every import of every process of a run.
"""

from __future__ import annotations

from importlib import import_module

_SPARK = (
    "encodings.cp437",  # names in zip archives, such as the demo's
    "encodings.idna",  # names of hosts, such as that of Spark's Python worker
    "pandas",  # pyarrow's C code asks for it, in whichever thread makes the first array
    "pyarrow.acero",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "distutils.version",  # pyspark compares versions by it
    "pyspark.ml.feature",
    "pyspark.ml.pipeline",
    "pyspark.sql.functions",
    "pyspark.sql.pandas.functions",
    "pyspark.sql.pandas.map_ops",
)
_H2O = (
    "pkg_resources",  # Sparkling Water looks by it whether it runs on Databricks
    "encodings.ascii",
    "sparkling_water",
    "h2o.estimators",
    "ai.h2o.sparkling.H2OConf",
    "ai.h2o.sparkling.H2OContext",
)


def preload(*, h2o: bool) -> None:
    """Import what Spark's side of a run needs, and H2O's where it is to start."""
    for name in (*_SPARK, *(_H2O if h2o else ())):
        import_module(name)
