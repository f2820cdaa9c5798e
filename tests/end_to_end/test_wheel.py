"""The wheel alone, in new environments without a checkout: each Python, with H2O and without, and no Java."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
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
    ours = ("VIRTUAL_ENV", "PYTHON", "JAVA_HOME", "SPARK", "PYSPARK")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    # pip's downloads may be used again; they would otherwise be looked for below the new HOME.
    asked = [sys.executable, "-m", "pip", "cache", "dir"]
    cache = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return {**kept, "HOME": str(folder), "PIP_CACHE_DIR": cache, "SPARKGPU_JAVA_FOLDERS": ""}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(REPOSITORY), "--no-deps", "--quiet", "-w", str(folder)],
        check=True,
    )
    return next(folder.glob("sparkgpu-*.whl"))


def _without_java() -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(name for name in folders if not Path(name, "java").exists())


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An environment of the wheel that nobody can write to, on a machine without a Java and an empty HOME."""

    bin: Path
    folder: Path

    def __call__(self, program: str, *arguments: str | Path, code: int = 0) -> tuple[str, str]:
        """Standard output and standard error of one of its programs."""
        done = subprocess.run(
            [*self._read_only(), "env", f"PATH={_without_java()}", self.bin / program, *arguments],
            cwd=self.folder, text=True, env=_outside(self.folder), capture_output=True, timeout=_SLOWEST_S,
        )  # fmt: skip
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout, done.stderr

    def _read_only(self) -> list[str | Path]:
        """For root, who can write everywhere else: the words before a command that mount the folder so."""
        if os.geteuid() != 0:
            return []
        mounted = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        return ["unshare", "-m", "bash", "-c", mounted, self.bin.parent]


@pytest.fixture(
    params=[("3.11", "h2o,java,xgboost-cpu"), ("3.12", ""), ("3.13", "h2o,java"), ("3.13", "")],
    ids=lambda found: "-".join(filter(None, found)),
)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Iterator[Installed]:
    version, extras = request.param
    python = _python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    venv = tmp_path / "venv"
    subprocess.run([python, "-m", "venv", str(venv)], check=True)
    asked = f"{wheel}[{extras}]" if extras else str(wheel)
    pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", asked]
    done = subprocess.run(pip, env=_outside(tmp_path), capture_output=True, text=True, timeout=_SLOWEST_S)
    assert done.returncode == 0, done.stderr[-3000:]
    subprocess.run(["chmod", "-R", "a-w", venv], check=True)
    yield Installed(bin=venv / "bin", folder=tmp_path)
    subprocess.run(["chmod", "-R", "u+w", venv], check=True)
    shutil.rmtree(venv)  # gigabytes, where torch brings CUDA


def _run(*more: str) -> list[str]:
    small = ("--set", "trees.ntrees=20", "--set", "neural.epochs=20")
    return ["--target", "target", "--task", "multiclass", "--cpu-lanes", "1", *small, *more]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(2 * _SLOWEST_S)
def test_a_wheel_in_a_new_environment_trains_and_predicts(
    installed: Installed, wine: Path, tmp_path: Path
) -> None:
    said, _ = installed("sparkgpu", "run", wine, *_run("--out", "run"))
    assert (tmp_path / "run" / "report" / "index.html").stat().st_size > 10_000
    has_h2o = any(installed.bin.parent.glob("lib/python3.*/site-packages/pysparkling"))
    results = json.loads((tmp_path / "run" / "metrics.json").read_text())
    engines = [model["engine"] for model in results["models"]]
    assert engines[:2] == ["h2o-xgboost" if has_h2o else "lightgbm", "torch"]
    mends = "pip install 'sparkgpu[h2o]'"
    if has_h2o:
        assert mends not in said
    else:
        assert f"lightgbm, since Spark and H2O are not installed here; `{mends}` brings" in said
        _, refused = installed("sparkgpu", "run", wine, *_run("--set", "trees.engine=h2o-xgboost"), code=3)
        assert refused == (
            f"sparkgpu: model 'trees': its engine h2o-xgboost is not installed here. Run `{mends}`.\n"
        )
        _, refused = installed("sparkgpu", "run", wine, *_run("--set", "prepare.by=spark"), code=3)
        assert refused == f'sparkgpu: prepare.by = "spark": Spark is not installed here. Run `{mends}`.\n'

    installed("sparkgpu", "predict", "run", wine, "--out", "found.csv", "--model", "blend")
    found = pyarrow.csv.read_csv(tmp_path / "found.csv")
    right = [int(a) == int(b) for a, b in zip(
        found["prediction"].to_pylist(), pq.read_table(wine)["target"].to_pylist(), strict=True
    )]  # fmt: skip
    assert sum(right) >= 0.9 * len(right)

    # Nothing of this checkout took part, and nothing is wrong with the environment.
    where, _ = installed("python", "-c", "import sparkgpu; print(sparkgpu.__file__)")
    assert str(tmp_path) in where
    assert "failure" not in installed("sparkgpu", "doctor")[0]
