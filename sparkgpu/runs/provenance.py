"""Where a result comes from: the versions and the hardware in ``env.json`` and ``metrics.json``."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

from sparkgpu.host.devices import Machine
from sparkgpu.rundir.records import DetailedHostRecord, EnvironmentRecord, GpuRecord, HostRecord

_PACKAGES = (
    "sparkgpu", "pyspark", "h2o", "h2o-pysparkling-3.5", "torch", "xgboost", "xgboost-cpu", "lightgbm",
    "catboost",     "numpy", "pandas", "pyarrow", "scikit-learn", "py4j",
)  # fmt: skip


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that a run depends on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def host(machine: Machine) -> HostRecord:
    """The machine, in the form of ``metrics.json``."""
    return HostRecord(
        system=platform.platform(),
        processor=_processor(),
        cores=machine.cores,
        available_memory_bytes=machine.memory_bytes,
        gpus=tuple(gpu.title for gpu in machine.gpus if gpu.problem is None),
        driver=machine.driver,
    )


def environment(machine: Machine) -> EnvironmentRecord:
    """The content of ``env.json``."""
    gpus = tuple(
        GpuRecord(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.title,
            memory_bytes=gpu.memory_bytes,
            problem=gpu.problem,
        )
        for gpu in machine.gpus
    )
    known = host(machine).model_dump(exclude={"gpus"})
    return EnvironmentRecord(versions=versions(), host=DetailedHostRecord(**known, gpus=gpus))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
