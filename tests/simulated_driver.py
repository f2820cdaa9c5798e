"""A simulated NVIDIA driver: the real pynvml talks to a library that answers from a text file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("simulated_nvml.c")


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the simulated ``libnvidia-ml.so.1``."""
    if (compiler := shutil.which("gcc") or shutil.which("cc")) is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must have a C compiler for the simulated driver", pytrace=False)
        pytest.skip("no C compiler for the simulated driver")
    return built(compiler, tmp_path_factory.mktemp("driver"))


def built(compiler: str, folder: Path) -> Path:
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1", "-o",
         str(folder / "libnvidia-ml.so.1"), str(SOURCE)],
        check=True, timeout=60,
    )  # fmt: skip
    return folder


Simulate = Callable[..., dict[str, str]]


@pytest.fixture
def simulate(driver_library: Path, tmp_path: Path) -> Simulate:
    """Writes a machine's lines (see the library's source); returns the environment to start programs in."""

    def environment(
        *lines: str, init: int = 0, cuda: int = 12040, driver: str = "550.54.15", **variables: str
    ) -> dict[str, str]:
        machine = tmp_path / "machine.txt"
        machine.write_text("\n".join([f"driver|{driver}|{cuda}|{init}", *lines]) + "\n")
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "SLURM_"))
        }
        return {
            **inherited, "LD_LIBRARY_PATH": str(driver_library), "SIMULATED_NVML": str(machine), **variables,
        }  # fmt: skip

    return environment
