"""A virtual Slurm cluster, a table, and the command on its login node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from virtual_cluster import Cluster, virtual_cluster, why_not

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 4,000 rows whose label ``y`` depends on three of four columns."""
    random = np.random.default_rng(5)
    frame = pd.DataFrame(random.normal(size=(4000, 4)), columns=list("abcd"))
    frame["y"] = np.where(frame["a"] + frame["b"] * frame["c"] > 0.2, "yes", "no")
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    frame.to_parquet(file, index=False)
    return file


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm of two nodes; skips with the reason if none can be started."""
    if reason := why_not():
        pytest.skip(reason)
    with virtual_cluster(tmp_path_factory.mktemp("slurm") / "cluster") as found:
        yield found


@pytest.fixture
def sparkgpu(cluster: Cluster) -> Callable[..., str]:
    """Run the command as on the cluster's login node. Returns its output."""

    def ask(*words: str | Path) -> str:
        command = [sys.executable, "-m", "sparkgpu", *map(str, words)]
        found = subprocess.run(command, env=cluster.environ, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    return ask


@pytest.fixture
def setup(java: Path) -> list[str]:
    """Options of `slurm write` for jobs that use this process's installation."""
    bin_folder = Path(sys.executable).parent
    lines = (
        f'export PATH={bin_folder}:"$PATH" PYTHONPATH={REPOSITORY} JAVA_HOME={java}',
        f"export MKL_CBWR={os.environ['MKL_CBWR']}",
    )
    return [word for line in lines for word in ("--setup", line)]
