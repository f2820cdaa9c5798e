"""Faults of the machine are told as such, whichever library met them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkgpu.core.errors import described

MEMORY = "the memory is exhausted. End other programs, ask for fewer lanes, or use another machine."
WORKER = "a Python worker of Spark was killed (out of memory?); the lane's log says more."
RESET = """An error occurred while calling o67.collectToPython.
: org.apache.spark.SparkException: Lost task 1.0 in stage 5.0: java.net.SocketException: Connection reset
\tat java.base/sun.nio.ch.NioSocketImpl.implRead(NioSocketImpl.java:328)
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:381)
\tat {place}
"""
WORKER_READ = "org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:774)"
SOURCE_READ = "org.apache.hadoop.fs.s3a.S3AInputStream.read(S3AInputStream.java:99)"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (pa.lib.ArrowMemoryError("malloc of size 128 failed"), MEMORY),
        (MemoryError("Unable to allocate 7.11 PiB for an array"), MEMORY),
        (RuntimeError(RESET.format(place=WORKER_READ)), WORKER),
    ],
)
def test_a_fault_of_the_machine_is_told_as_such(error: Exception, said: str) -> None:
    assert described(error) == {"kind": "trial", "message": said}


def test_a_source_that_breaks_off_is_not_taken_for_a_killed_worker() -> None:
    said = described(RuntimeError(RESET.format(place=SOURCE_READ)))["message"]
    assert said.endswith("java.net.SocketException: Connection reset")
