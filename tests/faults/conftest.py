"""What the faults share: the results of undisturbed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from injected import OPTIONS, Metrics
from running import COMMAND, Running, finished
from small_disks import SmallDisk


@pytest.fixture(scope="session")
def undisturbed_run(wine: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Running]:
    """A run with these options into which nothing was injected."""

    @cache
    def run(*options: str) -> Running:
        folder = tmp_path_factory.mktemp("undisturbed")
        return finished([*COMMAND, "run", wine, *OPTIONS, *options], folder / "out", folder)

    return run


@pytest.fixture(scope="session")
def undisturbed(undisturbed_run: Callable[..., Running]) -> Callable[..., Metrics]:
    """Its metrics."""
    return lambda *options: undisturbed_run(*options).metrics


@pytest.fixture
def parted(wine: Path, tmp_path: Path) -> Path:
    """The wines in folders that only Spark opens."""
    for part in range(2):
        folder = tmp_path / "parted" / f"part={part}"
        folder.mkdir(parents=True)
        pq.write_table(pq.read_table(wine).slice(89 * part, 89), folder / "rows.parquet")
    return tmp_path / "parted"


@pytest.fixture
def disk() -> Iterator[Callable[..., SmallDisk]]:
    """Makes small disks, which are gone after the test."""
    disks: list[SmallDisk] = []

    def made(place: Path, size: str = "400m", *options: str) -> SmallDisk:
        disks.append(SmallDisk(place, size, *options))
        return disks[-1]

    yield made
    for one in disks:
        one.remove()
