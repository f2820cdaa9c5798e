"""Fixtures for tests of whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import write_table
from standalone import Cluster, standalone


@pytest.fixture(scope="session")
def wine_in_parts(wine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in two files: such a table is not there before Spark is."""
    folder, rows = tmp_path_factory.mktemp("parts"), pq.read_table(wine)
    pq.write_table(rows.slice(0, 90), folder / "1.parquet")
    pq.write_table(rows.slice(90), folder / "2.parquet")
    return folder


@pytest.fixture(scope="session")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table of scikit-learn with three classes."""
    return write_table("wine", tmp_path_factory.mktemp("wine"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers for all tests that leave them as they were."""
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
