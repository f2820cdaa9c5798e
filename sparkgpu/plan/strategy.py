"""How one network is spread over devices: chosen, or checked when asked for, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sparkgpu.config.keys import NeuralConfig, Strategy
from sparkgpu.errors import ConfigError, DeviceError
from sparkgpu.words import counted

GANG_STRATEGIES: frozenset[Strategy] = frozenset({"dp", "ddp", "fsdp", "tp", "pp", "dp_tp", "dp_pp"})
"""Strategies that take several devices for one trial."""

_HYBRIDS = ("dp_tp", "dp_pp")
_ADAM_BYTES = 16  # of one float32 weight: itself, its gradient and two moments
_USABLE = 0.5  # of a device's memory; the other half is for the table and the activations


def choose_strategy(
    config: NeuralConfig, *, num_devices: int, trials: int, memory_bytes: int | None, nodes: int = 1
) -> tuple[Strategy, str]:
    """The strategy of a run's neural trials, and the reason in words.

    `trials` is how many there would be with one on each device; `memory_bytes` that of the smallest GPU;
    `num_devices` counts those of all `nodes` machines.
    """
    if config.strategy != "auto":
        return config.strategy, "asked for"
    needed = weight_bytes(config.hidden or ()) * _ADAM_BYTES // 4
    if num_devices > 1 and memory_bytes is not None and needed > memory_bytes * _USABLE:
        return "fsdp", (
            f"fsdp: weights, gradients and optimizer state take {needed / 2**30:.1f} GiB, more than a device "
            "can spare, so they are cut over all"
        )
    if nodes > 1:
        place = f"{num_devices} devices of {nodes} machines"
        return "ddp", f"ddp: one network on {place}, each with a part of a batch"
    if num_devices > 1 and trials < num_devices:
        return (
            "ddp",
            f"ddp: {counted(trials, 'repeat')} over {num_devices} devices, each with a part of a batch",
        )
    return "single", "single: each network trains on one device, one repeat for each lane"


def weight_bytes(hidden: Sequence[int]) -> int:
    """Bytes of the float32 weights between the hidden layers, the part known before the table is."""
    return 4 * sum(before * after for before, after in pairwise(hidden))


def ways(config: NeuralConfig, strategy: Strategy, num_devices: int) -> tuple[int, int]:
    """How many copies of the network there are, and over how many devices each is cut."""
    if strategy in ("tp", "pp"):
        return 1, num_devices
    if strategy in _HYBRIDS:
        cut = config.model_parallel or 2
        return num_devices // cut, cut
    return num_devices, 1


def check_strategy(config: NeuralConfig, strategy: Strategy, num_devices: int, *, nodes: int = 1) -> None:
    """Refuse what a strategy cannot split over the devices of all `nodes` machines.

    `config` has its layers; raises `ConfigError`.
    """
    asked = f'neural.strategy = "{strategy}"'
    if nodes > 1 and strategy in ("single", "dp"):
        raise ConfigError(
            f'{asked} stays within one process, but cluster.nodes = {nodes}; choose "ddp" or another that '
            "has a process for each device, or set cluster.nodes = 1."
        )
    hidden = config.hidden
    assert hidden is not None
    if config.compile and strategy not in ("single", "ddp"):
        raise ConfigError(f'{asked} and neural.compile exclude each other; compile with "single" or "ddp".')
    if strategy not in GANG_STRATEGIES:
        return
    if num_devices < 2 and strategy != "dp":
        raise ConfigError(
            f"{asked} spreads one network over several devices, but this run has one; name more with --gpus "
            'or --cpu-lanes, or choose "single".'
        )
    if config.model_parallel and strategy in ("tp", "pp") and config.model_parallel != num_devices:
        raise ConfigError(
            f"{asked} cuts the network over all {num_devices} devices, but neural.model_parallel = "
            f'{config.model_parallel}; leave it out, or choose "dp_{strategy}".'
        )
    if strategy in _HYBRIDS:
        cut = config.model_parallel or 2
        if cut < 2 or num_devices % cut or num_devices == cut:
            raise ConfigError(
                f"{asked} needs a number of devices that is a multiple of neural.model_parallel = {cut} "
                f"(2 or more), at least twice it; this run has {num_devices}."
            )
    cut = ways(config, strategy, num_devices)[1]
    if strategy in ("tp", "dp_tp"):
        _check_tensor_parallel(config, asked, cut)
    if strategy in ("pp", "dp_pp") and cut > len(hidden):
        blocks = counted(len(hidden), "block")
        raise ConfigError(
            f"{asked} makes {cut} stages, but neural.hidden = {list(hidden)} has {blocks}; "
            f"give it at least {cut}, or use fewer devices."
        )
    if strategy in ("pp", "dp_pp") and config.precision == "float16":
        raise ConfigError(f'{asked} does not scale losses as float16 needs; choose precision "bfloat16".')
    if strategy in ("pp", "dp_pp") and config.activation_checkpointing:
        raise ConfigError(
            f"{asked} and neural.activation_checkpointing exclude each other: a stage computes another "
            "micro-batch in between. Leave one out; a smaller neural.micro_batch_size saves memory as well."
        )


def check_precision(config: NeuralConfig, device: str) -> None:
    """Refuse a number format that a kind of device has not; raises `DeviceError`."""
    if not device.startswith("cuda") and config.precision in ("float16", "tf32"):
        raise DeviceError(
            f'neural.precision = "{config.precision}": a CPU computes it in software only, many times '
            'slower; set it to "float32" or "auto".'
        )


def _check_tensor_parallel(config: NeuralConfig, asked: str, cut: int) -> None:
    assert config.hidden is not None
    if config.architecture == "realmlp":
        raise ConfigError(
            f'{asked} cannot cut neural.architecture = "realmlp"; choose "ddp", "fsdp" or "pp" for it.'
        )
    # Of a pair of layers the first is cut by its outputs; in a residual block that is an inner width.
    widths = config.hidden[:1] if config.architecture == "resnet" else config.hidden[::2]
    for width in widths:
        if width % cut:
            raise ConfigError(
                f"{asked} cuts layers over {cut} devices, but a width of {width} in neural.hidden = "
                f"{list(config.hidden)} does not divide by {cut}; choose {width // cut * cut or cut} or "
                f"{(width // cut + 1) * cut}."
            )
