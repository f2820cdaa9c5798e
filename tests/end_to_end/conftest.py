"""Fixtures for tests of whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import write_table


@pytest.fixture(scope="session")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table of scikit-learn with three classes."""
    return write_table("wine", tmp_path_factory.mktemp("wine"))
