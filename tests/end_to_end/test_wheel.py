"""The wheel alone, in a new environment without a checkout, on each Python that it is for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from running import REPOSITORY

_SLOWEST_S = 900


def _python(version: str) -> str | None:
    """An interpreter of that version: on PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for place in filter(None, places):
        asked = "import sys; print(f'{sys.version_info[0]}.{sys.version_info[1]}')"
        found = subprocess.run([place, "-c", asked], capture_output=True, text=True)
        if found.stdout.strip() == version:
            return str(place)
    return None


def _outside(folder: Path) -> dict[str, str]:
    """The environment of a user who knows nothing of this checkout."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON"))}
    # pip's downloads may be used again; they would otherwise be looked for below the new HOME.
    asked = [sys.executable, "-m", "pip", "cache", "dir"]
    cache = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return {**kept, "HOME": str(folder), "PIP_CACHE_DIR": cache}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(REPOSITORY), "--no-deps", "--quiet", "-w", str(folder)],
        check=True,
    )
    return next(folder.glob("sparkgpu-*.whl"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(2 * _SLOWEST_S)
@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_a_wheel_in_a_new_environment_trains_and_predicts(
    version: str, wheel: Path, wine: Path, tmp_path: Path
) -> None:
    python = _python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True)
    own = tmp_path / "venv" / "bin"
    environment = _outside(tmp_path)

    def in_order(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=_SLOWEST_S
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    in_order(own / "python", "-m", "pip", "install", "--quiet", f"{wheel}[xgboost-cpu,java]")
    in_order(
        own / "sparkgpu", "run", wine, "--target", "target", "--task", "multiclass", "--cpu-lanes", "1",
        "--quiet", "--out", "run", "--set", "trees.ntrees=20", "--set", "neural.epochs=20",
    )  # fmt: skip
    assert (tmp_path / "run" / "report" / "index.html").stat().st_size > 10_000

    in_order(own / "sparkgpu", "predict", "run", wine, "--out", "found.csv", "--model", "blend")
    found = pyarrow.csv.read_csv(tmp_path / "found.csv")
    right = [int(a) == int(b) for a, b in zip(
        found["prediction"].to_pylist(), pq.read_table(wine)["target"].to_pylist(), strict=True
    )]  # fmt: skip
    assert sum(right) >= 0.9 * len(right)

    # Nothing of this checkout took part.
    where = in_order(own / "python", "-c", "import sparkgpu; print(sparkgpu.__file__)")
    assert str(tmp_path) in where
