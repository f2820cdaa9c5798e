"""Shared by all tests: options, markers, one Spark session, and real tables."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from simulated_driver import driver_library, simulate  # noqa: F401 # fixtures

from sparkgpu.core.errors import DeviceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from standalone import Cluster

# As lanes set it, before anything loads MKL. Otherwise the last bits of its sums depend on the memory address
# of a matrix.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Threads that wait for a core spin, and the other process needs it. Runs set their own number.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Digits are compared in float32 on every processor, which is what "auto" is without AMX.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

T = TypeVar("T")

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption(
        "--faults", action="store_true", help="run the faults injected into runs, and only those"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--faults") and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args = ["tests/faults"]
    gc.disable()  # until all is collected: what tests import is no garbage, and looking for some takes 2 s
    for words in ("distutils Version", "is_categorical_dtype", "is_datetime64tz_dtype"):
        config.addinivalue_line("filterwarnings", f"ignore:{words}:DeprecationWarning")  # pyspark's own
    config.addinivalue_line("filterwarnings", "ignore:toPandas attempted Arrow:UserWarning")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, with a reason, tests that this call or this machine cannot run."""
    gpu_missing: str | None = None
    if any("gpu" in item.keywords for item in items):
        from sparkgpu.core.host.devices import find_machine

        gpu_missing = None if find_machine().gpus else "no GPU is visible on this machine"
    for item in items:
        if item.get_closest_marker("gpu") and gpu_missing:
            item.add_marker(pytest.mark.skip(reason=gpu_missing))
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run it with --slow"))
        if item.get_closest_marker("fault") and not config.getoption("--faults"):
            item.add_marker(pytest.mark.skip(reason="a fault: run it with --faults"))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what the tests' modules imported: it stays, and a look takes 0.3 s."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def java() -> Path:
    """The home of a Java 17. Without one, a test fails in CI (CI=true) and is skipped elsewhere."""
    from sparkgpu.core.host.java import find_java

    return _found(find_java)


@pytest.fixture(scope="session")
def javac() -> str:
    """The compiler of a JDK 17. Without one, a test fails in CI (CI=true) and is skipped elsewhere."""
    from sparkgpu.h2o.build_jar import find_javac

    return _found(find_javac)


def _found(find: Callable[[], T]) -> T:
    try:
        return find()
    except DeviceError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have it: {error}", pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: Path) -> Iterator[SparkSession]:
    """The one Spark session of all tests (a process can have no second one)."""
    from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
    from sparkgpu.h2o.session import spark_session

    with (
        reserved_ports(1) as (port_base,),
        scratch_folder() as scratch,
        spark_session(
            name="tests", threads=2, heap_bytes=1536 * 2**20, scratch=scratch, port_base=port_base
        ) as session,
    ):
        yield session


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """The command line in this process, in the test's folder: exit code, standard output, standard error.

    A traceback fails the test. The handlers of signals that `main` sets are put back.
    """
    from sparkgpu.cli import main

    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}

    def called(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return (int(ended.value.code or 0), *capfd.readouterr())

    yield called
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table of scikit-learn with three classes."""
    from running import write_table

    return write_table("wine", tmp_path_factory.mktemp("wine"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Spark cluster of two workers for all tests that leave them as they were."""
    from standalone import standalone

    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def real_table(tmp_path_factory: pytest.TempPathFactory) -> RealTables:
    """Real tables by name."""
    return RealTables(tmp_path_factory.mktemp("tables"))


class RealTables:
    """Parquet files of real tables: the shared ones if they exist, else two made from dependencies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> Path:
        """The file of a shared table; skips the test if this machine does not have the shared tables."""
        file = _DATA / f"{name}.parquet"
        if not file.exists():
            pytest.skip(f"the shared table {name} is not on this machine")
        return file

    def mixed(self) -> tuple[Path, str]:
        """A small table of numbers and texts with missing values, and its target; every machine has it."""
        file = _DATA / "penguins.parquet"
        return (file, "species") if file.exists() else (self._planes(), "engine")

    def _planes(self) -> Path:
        """3,322 planes with their maker, year, seats and engine, of the built-in demo."""
        import pandas as pd

        from sparkgpu.core.table import demo_table

        file = self._folder / "planes.parquet"
        if not file.exists():
            planes = pd.read_parquet(demo_table.FOLDER / "planes.parquet")
            common = planes["engine"].isin(["Turbo-fan", "Turbo-jet"])
            planes[common].drop(columns=["tailnum"]).to_parquet(file, index=False)
        return file
