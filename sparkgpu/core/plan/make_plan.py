"""Makes the plan of a run from its configuration and the machine: every automatic choice, with its reason."""

from __future__ import annotations

from collections.abc import Iterable

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import AUTO_ENGINE, auto_engine
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.config.values import Preset
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.plan.devices import (
    check_tree_device,
    choose_strategy,
    reduces_on_cpu,
)
from sparkgpu.core.plan.gpu_memory import taken_bytes
from sparkgpu.core.plan.host_memory import reasons_of
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.preparation import Context, PreparedBy, choose_preparation
from sparkgpu.core.plan.time_limit import (
    MOST_REPEATS,
    MOST_REPEATS_OF_FOLDS,
    explained_s,
)
from sparkgpu.core.plan.trials import TrialSpec, lay_out_trials
from sparkgpu.core.table.source import Source
from sparkgpu.core.words import gibibytes, listed, seconds_text

GIB = 2**30

_BEST_REPEATS = 3


def make_plan(
    config: RunConfig,
    machine: Machine,
    devices: tuple[Device, ...],
    ports: tuple[int, ...],
    *,
    cuda_engine: str | None = None,
    proven: bool = False,
    started: float = 0.0,
    source: Source | None = None,
    size: tuple[int, int] | None = None,
) -> Plan:
    """Plan the run over `devices`, one lane each.

    `ports` holds one base per device, `cuda_engine` names an installed tree engine with CUDA of its own, and
    H2O's trees are `proven` to train on the devices.
    `started` is the start of the run by `time.monotonic`, from which a time limit counts. `source` is
    the run's table (None: files of this machine), `size` its rows and columns if they are known already.
    Raises `DeviceError` if the machine is too small for that many lanes.
    """
    reasons: dict[str, str] = {}
    on_gpu = devices[0].kind == "cuda"
    if config.devices.gpus is None and config.devices.cpu_lanes is None:
        reasons["devices"] = "every visible GPU" if on_gpu else "the CPU, since no GPU is visible here"
    preset = choose_preset(config, reasons, on_gpu=on_gpu)
    check_tree_device(config, reasons, on_gpu=on_gpu)
    trees = config.trees_by_name
    is_auto = any(found.engine == "auto" for found in trees.values())
    if is_auto and auto_engine() != AUTO_ENGINE:
        reasons["engine"] = (
            f"{auto_engine()}, since Spark and H2O are not installed here; "
            "`pip install 'sparkgpu[h2o]'` brings H2O's XGBoost, the usual one"
        )
    both_on_gpu = len(config.branches) > 1 and any(
        ENGINES.find(found.engine_name).on_gpu for found in trees.values()
    )
    if both_on_gpu and any(device.alone for device in devices):
        reasons["turns"] = (
            "the network waits for the trees: the GPU takes one process at a time (compute mode "
            "EXCLUSIVE_PROCESS; `nvidia-smi -c 0` lets both train at once)"
        )
    if not on_gpu and any(reduces_on_cpu(network, has_amx=machine.has_amx) for network in config.networks):
        reasons["precision"] = (
            "bfloat16 matrix products in TabM, for which this processor has a unit (AMX); its weights stay "
            "float32"
        )
    nodes = config.cluster.nodes
    strategy = choose_strategy(
        config,
        preset,
        reasons,
        device=devices[0].name,
        num_devices=nodes * len(devices),
        nodes=nodes,
        trials=(config.repeats or len(devices)) * (config.split.folds or 1) * max(1, len(config.networks)),
        memory_bytes=min(
            (device.free_bytes for device in devices if device.free_bytes is not None), default=None
        ),
        slices=any(device.is_slice for device in devices),
    )
    full = [
        one for one in devices if taken_bytes(one.memory_bytes or 0, one.used_bytes) == one.used_bytes > 0
    ]
    if full:
        reasons["GPU memory"] = "others use " + listed(
            f"{gibibytes(one.used_bytes)} of {gibibytes(one.memory_bytes or 0)} of {one.name}" for one in full
        )
    is_gang = STRATEGIES.find(strategy).is_gang
    probed = tuple(
        name
        for name, found in trees.items()
        if on_gpu
        and found.engine == "auto"
        and found.engine_name == AUTO_ENGINE
        and found.tree_method in ("auto", "gpu_hist")
    )
    if probed and proven:
        probed = ()
        reasons["engine"] = f"{AUTO_ENGINE}, which trained on such a GPU with this driver before"
    elif probed:
        reasons["engine"] = f"{AUTO_ENGINE}, after a probe of its library on the GPU" + (
            f"; where that fails, {cuda_engine}" if cuda_engine else ""
        )
    explain_rules(config, reasons)
    repeats = choose_repeats(config, preset, strategy, len(devices), reasons)
    trials = lay_out_trials(
        config, repeats, len(devices), strategy, nodes=nodes, probed=probed, otherwise=cuda_engine
    )
    has_session = any(ENGINES.find(trial.engine).needs_h2o for trial in trials)
    prepared_by = choose_preparation(config, source, has_session=has_session, reasons=reasons)
    heap = 0
    if has_session or prepared_by == "spark":
        heap = heap_bytes(machine, len(devices))
        reasons["memory"] = (
            f"{heap / GIB:.1f} GiB of Java heap a lane: a quarter of the lane's share of "
            f"{machine.memory_bytes / GIB:.0f} GiB"
        )
    lane_bytes = machine.memory_bytes // len(devices)
    if size is not None:
        engines = {trial.engine for trial in trials}
        reasons |= reasons_of(engines, *size, lane_bytes, test=config.split.test or 0.0, on_gpu=on_gpu)
    within_s = explain_limit(config, reasons)
    threads = max(1, machine.cores // len(devices))
    shared = not on_gpu and len(config.branches) > 1
    tree_threads, neural_threads = threads_of_branches(threads, shared=shared)
    lanes = tuple(
        LanePlan(
            index=index,
            device=device.name,
            cuda_visible_devices=device.visible,
            device_name=device.title,
            threads=threads,
            tree_threads=tree_threads,
            neural_threads=neural_threads,
            heap_bytes=heap,
            port_base=port,
            memory_bytes=lane_bytes,
            used_bytes=max(one.used_bytes for one in devices) if is_gang else device.used_bytes,
            in_turn=device.alone and both_on_gpu,
            context=context_of(index, trials, prepared_by),
        )
        for index, (device, port) in enumerate(zip(devices, ports, strict=True))
    )
    return Plan(
        preset=preset,
        lanes=lanes,
        trials=trials,
        reasons=reasons,
        prepared_by=prepared_by,
        time_limit=config.time_limit,
        deadline=None if within_s is None else started + within_s,
    )


def threads_of_branches(threads: int, *, shared: bool) -> tuple[int, int]:
    """The threads of trees and of networks, if they train on the same cores or not."""
    return (max(1, threads - threads // 2), max(1, threads // 2)) if shared else (threads, threads)


def context_of(lane: int, trials: Iterable[TrialSpec], prepared_by: PreparedBy) -> Context:
    """What is in a lane's JVM: where H2O grows trees, it is inside a Spark session."""
    if any(ENGINES.find(trial.engine).needs_h2o for trial in trials if lane in trial.gang):
        return "spark + h2o"
    return "spark" if lane == 0 and prepared_by == "spark" else "none"


def choose_preset(config: RunConfig, reasons: dict[str, str], *, on_gpu: bool) -> Preset:
    """The preset; adds the reason if it was left open."""
    if config.preset is not None:
        return config.preset
    preset: Preset = "balanced" if on_gpu else "fast"
    reasons["preset"] = f"{preset}, the default on {'GPUs' if on_gpu else 'CPU'}"
    return preset


def choose_repeats(
    config: RunConfig, preset: Preset, strategy: str, lanes: int, reasons: dict[str, str]
) -> int:
    """The number of seeds; adds the reason if it was left open."""
    if config.repeats is not None:
        return config.repeats
    if config.time_limit is not None:
        repeats = MOST_REPEATS_OF_FOLDS if config.split.folds else MOST_REPEATS
        reason = f"up to {repeats}, as many as fit in the time"
    elif STRATEGIES.find(strategy).is_gang:
        repeats, reason = 1, "1: all devices train one network"
    elif preset == "best" and lanes < _BEST_REPEATS:
        repeats = _BEST_REPEATS
        reason = f"{_BEST_REPEATS}, whose predictions the blend averages, by the best preset"
    else:
        repeats, reason = lanes, f"{lanes}, one for each lane"
    reasons["repeats"] = reason
    return repeats


def explain_rules(config: RunConfig, reasons: dict[str, str]) -> None:
    """Add why a run with rules has no networks."""
    if config.rules.asked:
        reasons["rules"] = (
            f"trees alone learn, since networks cannot keep {' and '.join(config.rules.asked)} rules"
        )


def explain_limit(config: RunConfig, reasons: dict[str, str]) -> float | None:
    """The seconds in which training and scores have to be done, of which the run's reasons tell."""
    limit = config.time_limit
    if limit is None:
        return None
    reasons["time limit"] = (
        f"{seconds_text(limit)}: each model trains once{' on each fold' if config.split.folds else ''}, "
        "then with further seeds while they fit"
        if config.repeats is None
        else f"{seconds_text(limit)}: training ends in time for scores and report"
    )
    return limit - (explained_s(limit) if config.report.level == "full" else 0.0)


def heap_bytes(machine: Machine, lanes: int) -> int:
    """The Java heap of each of `lanes` lanes on a machine. Raises `DeviceError` if it is too small."""
    # XGBoost and torch keep their data outside the Java heap, so the heap gets the smaller part of the share.
    heap = min(machine.memory_bytes // 4 // lanes, 64 * GIB)
    if heap < 0.75 * GIB:
        raise DeviceError(
            f"{lanes} lanes: {machine.memory_bytes / GIB:.1f} GiB of memory leave {heap / GIB:.2f} GiB of "
            "Java heap for each, and H2O needs at least 0.75; ask for fewer lanes."
        )
    return heap
