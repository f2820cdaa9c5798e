"""Fixtures for tests of whole runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="session")
def wine_in_parts(wine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in two files: such a table is not there before Spark is."""
    folder, rows = tmp_path_factory.mktemp("parts"), pq.read_table(wine)
    pq.write_table(rows.slice(0, 90), folder / "1.parquet")
    pq.write_table(rows.slice(90), folder / "2.parquet")
    return folder
