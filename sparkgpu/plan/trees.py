"""Where trees train when that is not where the lane is: said in the plan, or refused before the start."""

from __future__ import annotations

from sparkgpu.config.keys import RunConfig
from sparkgpu.errors import ConfigError

CPU_ENGINES = ("lightgbm",)
"""Engines without a GPU build among the packages that this project installs."""


def check_tree_device(config: RunConfig, reasons: dict[str, str], *, on_gpu: bool) -> None:
    """Refuse, or add as a reason, that an engine trains on the CPU.

    That `gpu_hist` was asked of it the configuration itself refuses. Raises `ConfigError`.
    """
    engine = config.trees.engine
    if not on_gpu or "trees" not in config.models or engine not in CPU_ENGINES:
        return
    if config.devices.gpus is not None and "neural" not in config.models:
        raise ConfigError(
            f'--gpus with trees.engine = "{engine}" alone: it has no GPU build here, so no model of this run '
            'would use a GPU. Ask for --cpu-lanes, or set trees.engine = "xgboost" or "h2o-xgboost".'
        )
    reasons["trees"] = (
        f'on the CPU: {engine} has no GPU build here; trees.engine = "xgboost" or "h2o-xgboost" use the GPU'
    )
