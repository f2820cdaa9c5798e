"""The environment of a process with Spark's Python side, which sets variables while other threads run."""

from __future__ import annotations

import sys

from sparkgpu.core.host.interpreter import complete_environment

_VALUES = {
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_GATEWAY_PORT": "",
    "PYSPARK_GATEWAY_SECRET": "",
    "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
}


def prepare_environment() -> None:
    """Set these and the libraries' variables that are not set yet. Call it before any thread starts."""
    complete_environment(_VALUES)
