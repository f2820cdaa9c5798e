"""The bundle works on a machine without a network: it is unpacked elsewhere, activated, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1500)]


def shell(command: str, folder: Path, environ: dict[str, str]) -> str:
    found = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environ, capture_output=True, text=True, timeout=900
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    return found.stdout + found.stderr


def without_network(command: str) -> str:
    """The command with only a loopback network, if possible; otherwise pip must use no index."""
    script = f"ip link set lo up && {command}"
    return f"unshare --net bash -c '{script}'" if os.geteuid() == 0 and shutil.which("ip") else command


def test_a_bundle_in_parts_is_unpacked_activated_and_runs_without_a_network(
    java: Path, tmp_path: Path
) -> None:
    packing = {**os.environ, "VIRTUAL_ENV": sys.prefix, "JAVA_HOME": str(java)}
    shell(f"{REPOSITORY}/env/bundle.sh --out {tmp_path} --part-size 60M", tmp_path, packing)
    parts = sorted(tmp_path.glob("sparkgpu-bundle.tar.gz.*"))
    assert len(parts) > 1
    assert all(part.stat().st_size <= 60 * 2**20 for part in parts)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    interpreter = Path(os.path.realpath(sys.executable)).parent
    bare = {
        "HOME": str(tmp_path),
        "PATH": f"{interpreter}:/usr/sbin:/usr/bin:/sbin:/bin",
        "PIP_NO_INDEX": "1",
    }
    shell("cat ../sparkgpu-bundle.tar.gz* | tar xz && rm ../sparkgpu-bundle.tar.gz*", elsewhere, bare)
    assert (elsewhere / ".bundle" / "python").read_text().strip() == f"3.{sys.version_info.minor}"
    run = (
        "source env/activate.sh && torchrun --help >/dev/null && sparkgpu run --cpu-lanes 1 --quiet "
        "--set trees.ntrees=5 --set neural.epochs=1 --set neural.hidden=[8] --out out"
    )
    said = shell(without_network(run), elsewhere, bare)
    assert "taking the packages from the bundle" in said
    assert (elsewhere / "out" / "metrics.json").exists()
    found = "import sparkgpu, torch; print(sparkgpu.__file__, torch.__file__)"
    for file in shell(f"source env/activate.sh && python -c '{found}' 2>/dev/null", elsewhere, bare).split():
        assert Path(file).is_relative_to(elsewhere)
