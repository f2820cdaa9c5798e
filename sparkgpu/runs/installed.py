"""What is installed of the engines that a run asks for, found without importing any of them."""

from __future__ import annotations

from importlib.util import find_spec

from sparkgpu.config.keys import RunConfig
from sparkgpu.config.models import TreesConfig
from sparkgpu.config.registry.engines import ENGINES
from sparkgpu.errors import DeviceError
from sparkgpu.runs.provenance import versions


def check_engines(config: RunConfig) -> None:
    """Refuse a run before its start if the library of one of its engines is not installed.

    Raises `DeviceError` with the command that installs it.
    """
    if config.search is not None and find_spec("optuna") is None:
        raise DeviceError(
            "--search: the package optuna is not installed here. Run `pip install 'sparkgpu[search]'`."
        )
    for name, section in zip(config.model_names, config.sections(), strict=True):
        if isinstance(section, TreesConfig) and (command := ENGINES.find(section.engine_name).missing):
            raise DeviceError(
                f"model {name!r}: its engine {section.engine_name} is not installed here. Run `{command}`."
            )


def engine_with_cuda() -> str | None:
    """The tree engine "xgboost" if its package is installed in the build with CUDA."""
    found = versions()
    return "xgboost" if "xgboost" in found and "xgboost-cpu" not in found else None
