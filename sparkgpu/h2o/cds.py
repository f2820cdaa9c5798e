"""Builds the class archive (AppCDS) that halves the start of a lane's JVM: ``python -m sparkgpu.h2o.cds``.

A JVM with Spark and H2O loads some 15,000 classes; an archive holds them parsed and verified. One JVM does a
small run of everything a lane does and lists its classes, a second one dumps those. A JVM that cannot use the
archive starts without it. H2O's XGBoost library is unpacked beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.host.java import find_java
from sparkgpu.h2o.startup import NATIVE_LIBRARY, archive_path, assembly_jar, class_path, native_library

# Classes that an archive cannot hold: generated at run time, or (Icer) resolved by H2O's own weaver.
_LEFT_OUT = ("Icer", "Lambda$", "javassist", "$$Lambda", "$Proxy", "GeneratedClass")
_DUMP_TIMEOUT_S = 900


def build() -> Path:
    """Make what is missing of the archive and the library for the present Java. Returns the archive's path.

    Raises `RuntimeError` with the last printed line if a step fails.
    """
    java_home = find_java()
    archive = archive_path(java_home)
    archive.parent.mkdir(parents=True, exist_ok=True)
    if not native_library().exists():
        _unpack(native_library())
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        folder = Path(name)
        listed = folder / "classes.list"
        _write_table(folder / "table.parquet")
        _run(
            [
                sys.executable, "-m", "sparkgpu", "run", str(folder / "table.parquet"), "--target", "y",
                "--cpu-lanes", "1", "--out", str(folder / "run"), "--quiet",
                "--set", 'models=["trees"]', "--set", "trees.engine=h2o-xgboost", "--set", "trees.ntrees=10",
            ],
            {**os.environ, "SPARKGPU_JVM_OPTIONS": f"-XX:DumpLoadedClassList={listed}"},
        )  # fmt: skip
        lines = listed.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = folder / "kept.list"
        kept.write_text(
            "".join(x for x in lines if not any(part in x for part in _LEFT_OUT)), encoding="utf-8"
        )
        dumped = folder / archive.name
        _run(
            [
                str(java_home / "bin" / "java"), "-Xshare:dump", "-Xlog:cds=error", "-Xlog:cds+path=error",
                f"-XX:SharedClassListFile={kept}", f"-XX:SharedArchiveFile={dumped}",
                "-cp", os.pathsep.join(class_path()),
            ],
            dict(os.environ),
        )  # fmt: skip
        dumped.replace(archive)
    return archive


def _unpack(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    own = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        with zipfile.ZipFile(assembly_jar()) as packed, own.open("wb") as file:
            shutil.copyfileobj(packed.open(f"lib/linux_64/{NATIVE_LIBRARY}"), file)
        own.replace(target)
    finally:
        own.unlink(missing_ok=True)


def _write_table(file: Path) -> None:
    """A table with a column of every kind, so that the small run loads the same classes as a real run."""
    rows = range(600)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    table = pa.table(
        {
            "number": pa.array([None if i % 7 == 0 else i * 0.5 for i in rows]),
            "whole": pa.array([i * i % 101 for i in rows], pa.int32()),
            "text": pa.array([None if i % 11 == 0 else f"level {i % 5}" for i in rows]),
            "flag": pa.array([i % 3 == 0 for i in rows]),
            "timestamp": pa.array([start + timedelta(minutes=17 * i) for i in rows]),
            "y": pa.array(["yes" if i * i % 101 > 40 else "no" for i in rows]),
        }
    )
    pq.write_table(table, file)


def _run(command: list[str], environ: dict[str, str]) -> None:
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=_DUMP_TIMEOUT_S, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["nothing printed"]
        raise RuntimeError(f"status {done.returncode}: {lines[-1]}")


def main() -> None:
    """Build the archive and report success or failure in one line."""
    try:
        archive = build()
    except (
        RuntimeError, ValueError, OSError, KeyError, zipfile.BadZipFile, subprocess.TimeoutExpired,
    ) as error:  # fmt: skip
        print(f"sparkgpu: no class archive was built, so runs start a few seconds later ({error})")
        sys.exit(1)
    print(f"sparkgpu: the class archive is ready ({archive.stat().st_size / 2**20:.0f} MiB)")


if __name__ == "__main__":
    main()
