"""Given notice, a run saves its network in the middle of an epoch, ends, and goes on where it was."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.spark

SETTINGS = (
    "--set", "trees.engine=lightgbm", "--set", "trees.ntrees=5", "--set", "neural.architecture=mlp",
    "--set", "neural.hidden=[16]", "--set", "neural.batch_size=4", "--set", "neural.patience=0",
)  # fmt: skip


def write_rows(file: Path, rows: int) -> Path:
    random = np.random.default_rng(5)
    frame = pd.DataFrame(random.normal(size=(rows, 4)), columns=list("abcd"))
    frame["y"] = np.where(frame["a"] + frame["b"] * frame["c"] > 0.2, "yes", "no")
    frame.to_parquet(file, index=False)
    return file


def wait_for(file_pattern: str, root: Path, process: subprocess.Popen[bytes]) -> None:
    import time

    deadline = time.monotonic() + 90
    while not list(root.glob(file_pattern)):
        assert process.poll() is None and time.monotonic() < deadline, file_pattern
        time.sleep(0.02)
