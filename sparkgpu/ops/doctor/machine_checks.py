"""What a run needs of a machine besides GPUs: Python, packages, Java, ports, memory, disk.

Nothing heavy is imported: packages are looked up, not loaded.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sparkgpu.core.config.model_keys import auto_engine
from sparkgpu.core.errors import SparkgpuError
from sparkgpu.core.host.devices import Machine
from sparkgpu.core.host.java import find_java
from sparkgpu.core.host.reservations import BLOCK, reserved_ports
from sparkgpu.core.words import counted, gibibytes, listed
from sparkgpu.h2o.startup import assembly_jar
from sparkgpu.ops.doctor.check import Check, failure, ok, warning

GIB = 2**30

_PACKAGES = ("torch", "lightgbm", "pyarrow", "pandas", "scikit-learn")
_OF_H2O = ("pyspark", "h2o", "h2o-pysparkling-3.5")
_LEAST_MEMORY, _LEAST_DISK, _LEAST_SHARED = 4 * GIB, 5 * GIB, GIB // 2


def machine_checks(machine: Machine, environ: Mapping[str, str]) -> Iterator[Check]:
    """The checks, one after the other."""
    yield _python()
    yield _packages()
    yield (h2o := _spark_and_h2o())
    if h2o.status == "ok":
        yield _java(environ)
        yield _native_trees()
    yield _ports()
    yield _memory(machine)
    yield _disk()
    yield _shared_memory()


def _python() -> Check:
    found = f"{platform.python_version()} in {sys.prefix}"
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return ok("Python", found)
    return warning("Python", found, "make an environment of 3.11, 3.12 or 3.13, on which this was tested")


def _packages() -> Check:
    versions, absent = _installed(_PACKAGES)
    if absent:
        return failure("packages", f"not installed: {listed(absent)}", "pip install sparkgpu")
    return ok("packages", ", ".join(versions))


def _spark_and_h2o() -> Check:
    name, fix = "Spark and H2O", "pip install 'sparkgpu[h2o]'"
    versions, absent = _installed(_OF_H2O)
    if not versions:
        return warning(name, f"not installed; trees are those of {auto_engine()} instead of H2O's", fix)
    if absent:
        return failure(name, f"not installed: {listed(absent)}", fix)
    return ok(name, ", ".join(versions))


def _installed(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Those that are here, with their versions, and those that are not."""
    versions, absent = [], []
    for name in names:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    return versions, absent


def _java(environ: Mapping[str, str]) -> Check:
    try:
        return ok("Java", f"17 in {find_java(environ)}")
    except SparkgpuError as error:
        return failure(
            "Java", str(error).partition(";")[2].partition(".")[0].strip(), "pip install 'sparkgpu[java]'"
        )


def _native_trees() -> Check:
    """H2O's XGBoost: a native library in its jar, which needs OpenMP's own."""
    name = "H2O XGBoost"
    try:
        with zipfile.ZipFile(assembly_jar()) as jar:
            libraries = [Path(entry).name for entry in jar.namelist() if "linux_64/libxgboost4j" in entry]
    except (OSError, AssertionError, zipfile.BadZipFile) as error:
        fix = "pip install --force-reinstall 'sparkgpu[h2o]'"
        return failure(name, f"its jar cannot be read ({error})", fix)
    system = f"{platform.system()} on {platform.machine()}"
    if system != "Linux on x86_64":
        return failure(name, f"no native library for {system}", "set trees.engine to lightgbm or xgboost")
    if ctypes.util.find_library("gomp") is None:
        return failure(name, "the system has no libgomp.so.1, which it needs", "apt-get install libgomp1")
    return ok(name, ", ".join(sorted(libraries)))


def _ports() -> Check:
    try:
        with reserved_ports(1) as (base,), socket.create_server(("127.0.0.1", base)):
            return ok("ports", f"{counted(BLOCK, 'port')} of a lane from {base} on are free on 127.0.0.1")
    except (OSError, SparkgpuError) as error:
        return failure("ports", str(error), "stop other runs, or allow programs to listen on 127.0.0.1")


def _memory(machine: Machine) -> Check:
    found = f"{gibibytes(machine.memory_bytes)} available, {counted(machine.cores, 'core')}"
    if machine.memory_bytes < _LEAST_MEMORY:
        return warning("memory", found, "free some, or give the container or job more: a lane wants 4 GiB")
    return ok("memory", found)


def _disk() -> Check:
    folder = tempfile.gettempdir()
    if not os.access(folder, os.W_OK):
        return failure("disk", f"{folder} cannot be written", "set TMPDIR to a folder that you may write to")
    free = shutil.disk_usage(folder).free
    found = f"{gibibytes(free)} free in {folder}"
    if free < _LEAST_DISK:
        return warning("disk", found, "free some, or set TMPDIR to a larger disk: H2O unpacks its libraries")
    return ok("disk", found)


def _shared_memory() -> Check:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return ok("shared memory", "this system has no /dev/shm")
    size = shutil.disk_usage(folder).total
    found = f"{gibibytes(size)} in {folder}"
    fix = "start the container with --shm-size 1g: ranks and loaders use it"
    return ok("shared memory", found) if size >= _LEAST_SHARED else warning("shared memory", found, fix)
