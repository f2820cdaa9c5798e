"""What is installed here, and on which machine.

For ``env.json`` and ``metrics.json``, and to refuse a run whose engines are missing; nothing is imported
for it.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparkgpu.core.config.context_keys import ContextConfig
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.errors import ConfigError, DeviceError
from sparkgpu.core.host.cuda_packages import has_xgboost_with_cuda
from sparkgpu.core.host.devices import Machine
from sparkgpu.core.host.java import find_java
from sparkgpu.core.rundir.records import HostRecord

_PACKAGES = (
    "sparkgpu", "pyspark", "h2o", "h2o-pysparkling-3.5", "torch", "xgboost", "xgboost-cpu", "lightgbm",
    "catboost", "tabicl", "numpy", "pandas", "pyarrow", "scikit-learn", "py4j",
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


def environment(machine: Machine) -> dict[str, Any]:
    """The content of ``env.json``: the same, with all that is known about each GPU."""
    gpus = [
        {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.title, "memory_bytes": gpu.memory_bytes,
         "problem": gpu.problem}
        for gpu in machine.gpus
    ]  # fmt: skip
    return {"versions": versions(), "host": {**host(machine).model_dump(), "gpus": gpus}}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def check_engines(config: RunConfig) -> None:
    """Refuse a run before its start if the library of one of its engines is not installed.

    Raises `DeviceError` with the command that installs it.
    """
    if config.search is not None and find_spec("optuna") is None:
        raise DeviceError(
            "--search: the package optuna is not installed here. Run `pip install 'sparkgpu[search]'`."
        )
    for name, section in ((name, config.section(name)) for name in config.model_names):
        if command := ENGINES.find(section.engine_name).missing:
            raise DeviceError(
                f"model {name!r}: its engine {section.engine_name} is not installed here. Run `{command}`."
            )
        if (
            isinstance(section, ContextConfig)
            and section.checkpoint is not None
            and not Path(section.checkpoint).is_file()
        ):
            raise ConfigError(
                f"model {name!r}: its checkpoint {section.checkpoint} is no file. Give the path of its "
                "weights, or leave it out for the published ones."
            )


def check_jvm(asked: str, environ: Mapping[str, str]) -> None:
    """Refuse what was `asked` for, which starts a JVM, where Spark or its Java is missing.

    Raises `DeviceError` with the command that installs it.
    """
    if find_spec("pyspark") is None or find_spec("sparkling_water") is None:
        raise DeviceError(f"{asked}: Spark is not installed here. Run `pip install 'sparkgpu[h2o]'`.")
    find_java(environ)


def engine_with_cuda() -> str | None:
    """The tree engine "xgboost" if its package is installed in the build with CUDA."""
    return "xgboost" if has_xgboost_with_cuda() else None
