"""Environment variables that Spark's Python side sets while other threads run.

A new variable makes the C library move the whole environment. A thread that reads it at that moment (any C
code that calls `getenv`) crashes the process: one start in some fifty with a cold file cache. So these
variables exist before the first thread starts. Later only their values change, which moves nothing.
"""

from __future__ import annotations

import os
import sys

_VALUES = {
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_GATEWAY_PORT": "",
    "PYSPARK_GATEWAY_SECRET": "",
    "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
}


def prepare_environment() -> None:
    """Set the variables that are not set yet. Call it before the process starts any thread."""
    for name, value in _VALUES.items():
        os.environ.setdefault(name, value)
