"""Trees that cannot train on the lane's GPU: the plan gives a reason, or refuses them before the start."""

from __future__ import annotations

from sparkgpu.config.keys import RunConfig
from sparkgpu.config.models import TreesConfig
from sparkgpu.config.registry.engines import ENGINES
from sparkgpu.errors import ConfigError, DeviceError


def check_tree_device(config: RunConfig, reasons: dict[str, str], *, on_gpu: bool) -> None:
    """Refuse trees that would train on the CPU beside a GPU, or give the reason why they do.

    The configuration itself refuses `gpu_hist` for an engine without a GPU form. Raises `ConfigError` if no
    model would use a GPU that was asked for, `DeviceError` if trees would leave the GPU.
    """
    if not on_gpu:
        return
    sections = zip(config.model_names, config.sections(), strict=True)
    trees = {name: found for name, found in sections if isinstance(found, TreesConfig)}
    could = any(ENGINES.find(found.engine_name).on_gpu for found in trees.values())
    for name, found in trees.items():
        engine = found.engine_name
        if not ENGINES.find(engine).on_gpu:
            if config.devices.gpus is not None and not could and "neural" not in config.branches:
                raise ConfigError(
                    f'--gpus with trees.engine = "{engine}" alone: it has no GPU build here, so no model of '
                    'this run would use a GPU. Ask for --cpu-lanes, or set trees.engine = "xgboost" or '
                    '"h2o-xgboost".'
                )
            reasons[name] = (
                f"on the CPU: {engine} has no GPU build here; "
                'trees.engine = "xgboost" or "h2o-xgboost" use the GPU'
            )
        else:
            _check_stays_on_gpu(found)


def _check_stays_on_gpu(trees: TreesConfig) -> None:
    entry = ENGINES.find(trees.engine_name)
    asked = trees.tree_method in ("auto", "gpu_hist")
    if asked and trees.grow_policy == "lossguide" and not entry.leafwise_on_gpu:
        raise DeviceError(
            f'trees.grow_policy = "lossguide": on a GPU {entry.name} grows trees level by level and would '
            'silently use the CPU for others. Set trees.grow_policy = "depthwise", trees.engine = "xgboost", '
            'or trees.tree_method = "hist".'
        )
    most, depth = entry.most_gpu_depth, trees.max_depth
    if asked and most is not None and depth is not None and not 0 < depth <= most:
        raise DeviceError(
            f"trees.max_depth = {depth}: on a GPU {entry.name} grows trees of depth 1 to {most} and would "
            'silently use the CPU for others. Choose one of these, or set trees.tree_method = "hist".'
        )
