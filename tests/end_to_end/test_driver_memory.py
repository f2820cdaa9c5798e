"""A table larger than the driver: nothing collects it, so ten times the rows need no more memory there."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import Running, started
from standalone import Cluster, spark_environment, standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

COLUMNS = 30
ROWS = 300_000
MIB = 2**20


def write_rows(file: Path, rows: int) -> int:
    """A table of random numbers with a target that two of them decide; its size in memory."""
    random = np.random.default_rng(7)
    schema = pa.schema([*((f"x{index}", pa.float64()) for index in range(COLUMNS)), ("y", pa.int64())])
    with pq.ParquetWriter(file, schema) as writer:
        for _ in range(0, rows, 100_000):
            values = random.normal(size=(COLUMNS, 100_000))
            label = (values[0] + values[1] ** 2 > 1).astype(np.int64)
            writer.write_table(pa.table([*values, label], schema=schema))
    return rows * (COLUMNS + 1) * 8


def driver_bytes(running: Running) -> int:
    """The memory now of the parent and of the driver with its JVM; executors are not below them."""
    total = 0
    with suppress(psutil.Error):
        root = psutil.Process(running.process.pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def peak_of(cluster: Cluster, table: Path, folder: Path) -> int:
    """The peak memory of the driver's processes during a run on `table`."""
    folder.mkdir()
    command = cluster.submit(
        table, "--target", "y", "--set", "trees.ntrees=10", "--set", "neural.architecture=mlp",
        "--set", "neural.hidden=[16]", "--set", "neural.epochs=1", "--set", "split.test=0.02",
        "--set", "split.valid=0.02",
        conf=["spark.driver.memory=512m", "spark.executor.memory=2g"],
    )  # fmt: skip
    peaks = [0]
    with started(command, folder / "out", folder, spark_environment()) as running:
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.2):
                peaks.append(driver_bytes(running))

        watcher = threading.Thread(target=watch)
        watcher.start()
        status = running.wait(700)
        ended.set()
        watcher.join()
        assert status == 0, running.stdout + running.stderr
    return max(peaks)


def test_the_driver_holds_no_more_of_a_table_ten_times_as_long(tmp_path: Path) -> None:
    small = write_rows(tmp_path / "small.parquet", ROWS)
    large = write_rows(tmp_path / "large.parquet", 10 * ROWS)
    with standalone(tmp_path, memory="2500m") as cluster:
        of_small = peak_of(cluster, tmp_path / "small.parquet", tmp_path / "one")
        time.sleep(2)  # until the master has freed the executors' memory
        of_large = peak_of(cluster, tmp_path / "large.parquet", tmp_path / "ten")
    print(
        f"table {small / MIB:.0f} and {large / MIB:.0f} MiB, driver {of_small / MIB:.0f} and "
        f"{of_large / MIB:.0f} MiB"
    )
    assert large > 1.2 * 512 * MIB  # no room for it on the driver's heap
    assert of_large - of_small < 0.2 * (large - small)
