"""Which devices the models use: how one network is spread over several, and which trees stay on the CPU.

Both are chosen, or the user's choice is checked, before anything starts.
"""

from __future__ import annotations

from itertools import pairwise

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import NeuralConfig, TreesConfig
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.registry.networks import NETWORKS
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.config.values import Preset
from sparkgpu.core.errors import ConfigError, DeviceError
from sparkgpu.core.plan.defaults import fill, neural_defaults
from sparkgpu.core.words import counted

_ADAM_BYTES = 16  # for one float32 weight: itself, its gradient and two moments
_HYBRID_CUT = 2  # devices over which a copy of the network is cut by default
ONE_SLICE = "CUDA shows a process one slice of a GPU that MIG has cut"
"""NVIDIA's MIG user guide, "CUDA Device Enumeration"."""

_USABLE = 0.5  # share of a device's memory; the other half is for the table and the activations


def choose_strategy(
    config: RunConfig,
    preset: Preset,
    reasons: dict[str, str],
    *,
    device: str,
    num_devices: int,
    nodes: int = 1,
    trials: int,
    memory_bytes: int | None,
    slices: bool = False,
) -> str:
    """How the networks are spread, checked; adds the reason if it was left open.

    All networks of a run are spread in the same way. `trials` is the number of trials with one on each
    device; `memory_bytes` is that of the smallest GPU; `num_devices` counts the devices of all `nodes`
    machines, and `slices` tells that MIG has cut some of them.
    """
    networks = [fill(one, neural_defaults(one, preset, device)) for one in config.networks or [config.neural]]
    strategy = config.neural.strategy
    if strategy == "auto":
        # The weights between hidden layers are known before the table.
        weights = max(sum(a * b for a, b in pairwise(network.hidden or ())) for network in networks)
        needed = weights * _ADAM_BYTES
        strategy, why = "single", "each network trains on one device, one repeat for each lane"
        if slices and num_devices > 1:
            why += f": {ONE_SLICE}"
        elif num_devices > 1 and memory_bytes is not None and needed > memory_bytes * _USABLE:
            strategy = "fsdp"
            why = (
                f"weights, gradients and optimizer state take {needed / 2**30:.1f} GiB, more than a device "
                "can spare, so they are cut over all"
            )
        elif nodes > 1 or trials < num_devices:
            strategy = "ddp"
            what = "one network on" if nodes > 1 else f"{counted(trials, 'repeat')} over"
            where = f"{num_devices} devices of {nodes} machines" if nodes > 1 else f"{num_devices} devices"
            why = f"{what} {where}, each with a part of a batch"
        reasons["strategy"] = f"{strategy}: {why}"
    check_slices(strategy, num_devices, slices=slices)
    for network in networks:
        check_strategy(network, strategy, num_devices, nodes=nodes)
        check_precision(network, device)
    return strategy


def check_slices(strategy: str, num_devices: int, *, slices: bool) -> None:
    """Refuse to spread a network over devices that MIG has cut. Raises `DeviceError`."""
    if slices and num_devices > 1 and STRATEGIES.find(strategy).is_gang:
        raise DeviceError(
            f'neural.strategy = "{strategy}": {ONE_SLICE}, and these are {num_devices} devices with slices. '
            'Choose "single", which trains a network on each, or name one device with --gpus.'
        )


def ways(config: NeuralConfig, strategy: str, num_devices: int) -> tuple[int, int]:
    """The number of copies of the network, and the number of devices over which each is cut."""
    entry = STRATEGIES.find(strategy)
    if entry.cuts is None:
        return num_devices, 1
    cut = (config.model_parallel or _HYBRID_CUT) if entry.hybrid else num_devices
    return num_devices // cut, cut


def check_strategy(config: NeuralConfig, strategy: str, num_devices: int, *, nodes: int = 1) -> None:
    """Refuse a network that a strategy cannot split over the devices of all `nodes` machines.

    Its layers are chosen. Raises `ConfigError`.
    """
    asked = f'neural.strategy = "{strategy}"'
    entry = STRATEGIES.find(strategy)
    if nodes > 1 and entry.devices != "ranks":
        raise ConfigError(
            f'{asked} stays within one process, but cluster.nodes = {nodes}; choose "ddp" or another that '
            "has a process for each device, or set cluster.nodes = 1."
        )
    if NETWORKS.find(config.architecture).whole and strategy not in ("single", "dp", "ddp"):
        raise ConfigError(
            f'{asked} cannot cut neural.architecture = "{config.architecture}", which looks up training rows '
            'on each device; choose "single" or "ddp" for it.'
        )
    if config.compile and not entry.compiles:
        raise ConfigError(f'{asked} and neural.compile exclude each other; compile with "single" or "ddp".')
    if config.precision == "float16" and not entry.scales_losses:
        raise ConfigError(
            f'{asked} does not scale losses as float16 needs; choose precision "bfloat16" or "float32".'
        )
    if not entry.is_gang:
        return
    if num_devices < 2 and entry.devices == "ranks":
        raise ConfigError(
            f"{asked} spreads one network over several devices, but this run has one; name more with --gpus "
            'or --cpu-lanes, or choose "single".'
        )
    if entry.cuts and not entry.hybrid and config.model_parallel not in (None, num_devices):
        raise ConfigError(
            f"{asked} cuts the network over all {num_devices} devices, but neural.model_parallel = "
            f'{config.model_parallel}; leave it out, or choose "dp_{strategy}".'
        )
    if entry.hybrid:
        cut = config.model_parallel or _HYBRID_CUT
        if cut < 2 or num_devices % cut or num_devices == cut:
            raise ConfigError(
                f"{asked} needs a multiple of neural.model_parallel = {cut} (2 or more) devices, "
                f"and at least twice as many; this run has {num_devices}."
            )
    cut = ways(config, strategy, num_devices)[1]
    if entry.cuts == "layers":
        _check_tensor_parallel(config, asked, cut)
    if entry.cuts == "blocks":
        _check_pipeline(config, asked, cut)


def check_precision(config: NeuralConfig, device: str) -> None:
    """Refuse a number format that this kind of device computes in software. Raises `DeviceError`."""
    if not device.startswith("cuda") and config.precision in ("float16", "tf32"):
        raise DeviceError(
            f'neural.precision = "{config.precision}": a CPU computes it only in software, many times '
            'slower; set it to "float32" or "auto".'
        )


def reduces_on_cpu(network: NeuralConfig, *, has_amx: bool) -> bool:
    """Whether this network trains in bfloat16 on a CPU, with or without AMX, though nobody asked for it."""
    return network.precision == "auto" and has_amx and NETWORKS.find(network.architecture).bfloat16_on_amx


def _check_pipeline(config: NeuralConfig, asked: str, cut: int) -> None:
    hidden = config.hidden or ()
    if cut > len(hidden):
        blocks = counted(len(hidden), "block")
        raise ConfigError(
            f"{asked} makes {cut} stages, but neural.hidden = {list(hidden)} has {blocks}; "
            f"give it at least {cut}, or use fewer devices."
        )
    if config.activation_checkpointing:
        raise ConfigError(
            f"{asked} and neural.activation_checkpointing exclude each other: a stage computes another "
            "micro-batch in between. Leave one out; a smaller neural.micro_batch_size saves memory as well."
        )


def _check_tensor_parallel(config: NeuralConfig, asked: str, cut: int) -> None:
    hidden = config.hidden or ()
    way = NETWORKS.find(config.architecture).tensor_parallel
    if way is None:
        raise ConfigError(
            f'{asked} cannot cut neural.architecture = "{config.architecture}"; choose "ddp", "fsdp" or "pp" '
            "for it."
        )
    # In a pair of layers, the first is cut by its outputs.
    widths = hidden[:1] if way == "inner" else hidden[::2]
    for width in widths:
        if width % cut:
            raise ConfigError(
                f"{asked} cuts layers over {cut} devices, but a width of {width} in neural.hidden = "
                f"{list(hidden)} does not divide by {cut}; choose {width // cut * cut or cut} or "
                f"{(width // cut + 1) * cut}."
            )


def check_tree_device(config: RunConfig, reasons: dict[str, str], *, on_gpu: bool) -> None:
    """Refuse trees that would train on the CPU beside a GPU, or give the reason why they do.

    The configuration itself refuses `gpu_hist` for an engine without a GPU form. Raises `ConfigError` if no
    model would use a GPU that was asked for, `DeviceError` if trees would leave the GPU.
    """
    if not on_gpu:
        return
    on_cpu: list[str] = []
    for name, trees in config.trees_by_name.items():
        engine = trees.engine_name
        if ENGINES.find(engine).on_gpu:
            _check_stays_on_gpu(trees)
            continue
        on_cpu.append(engine)
        reasons[name] = (
            f"on the CPU: {engine} has no GPU build here; "
            'trees.engine = "xgboost" or "h2o-xgboost" use the GPU'
        )
    if config.devices.gpus is not None and len(on_cpu) == len(config.models):
        raise ConfigError(
            f'--gpus with trees.engine = "{on_cpu[0]}" alone: it has no GPU build here, so no model of '
            'this run would use a GPU. Ask for --cpu-lanes, or set trees.engine = "xgboost" or '
            '"h2o-xgboost".'
        )


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
