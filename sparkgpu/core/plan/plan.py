"""The plan of a run: lanes, their share of the machine, the trials on each, and every automatic choice.

`Plan.resolved` fills the open keys of the configuration when the table is known. It gives the same result in
every process, so the parent and the workers need not exchange it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import AUTO_ENGINE, auto_engine
from sparkgpu.core.config.parameters import TreesParameters
from sparkgpu.core.config.registry.engines import BRANCHES, ENGINES, Branch
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.config.values import Preset
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.plan.defaults import Resolved, resolve
from sparkgpu.core.plan.devices import (
    check_tree_device,
    choose_strategy,
    reduces_on_cpu,
)
from sparkgpu.core.plan.gpu_memory import taken_bytes, tree_bytes
from sparkgpu.core.plan.host_memory import reasons_of
from sparkgpu.core.plan.preparation import Context, PreparedBy, choose_preparation
from sparkgpu.core.plan.time_limit import (
    MOST_REPEATS,
    MOST_REPEATS_OF_FOLDS,
    explained_s,
    planned_s,
    training_ends,
)
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec, lay_out_trials, of_first_seed, sharing_time
from sparkgpu.core.rundir.files import Record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.table.source import Source
from sparkgpu.core.words import gibibytes, listed, seconds_text

GIB = 2**30

_BEST_REPEATS = 3


class LanePlan(Record):
    """One lane: a device and its share of the machine.

    `threads` are its cores (Spark and H2O use all of them). The two branches train at the same time with
    `tree_threads` and `neural_threads`. On the CPU they divide the cores, since two OpenMP teams on the same
    cores wait for each other at every barrier and take several times as long. `heap_bytes` is the JVM's heap
    (0: no lane needs one), `port_base` the first port of the lane's own block; for an executor, Spark or the
    lane's own machine decides both. `memory_bytes` is its share of the memory that the run may use (0: not
    known). Others used `used_bytes` of the device's memory when the run began (of
    devices that train one network, the largest). `context` tells what is in its JVM. `in_turn` means that its
    device takes one process at a time, so the network waits until the trees' process has ended.
    """

    index: int
    device: str
    cuda_visible_devices: str | None
    device_name: str
    threads: int
    tree_threads: int
    neural_threads: int
    heap_bytes: int = 0
    port_base: int = 0
    memory_bytes: int = 0
    used_bytes: int = 0
    in_turn: bool = False
    context: Context = "none"


class Plan(Record):
    """``plan.json``. `reasons` gives the reason of each automatic choice in words.

    On a Spark cluster `master` names the cluster and lanes are executors, which as a `cloud` train each model
    together; `num_ranks` is the number of processes that train a network spread over them, and `h2o_gpus`
    lets an H2O cloud of several nodes use their GPUs. The result of a run with a `time_limit` (in seconds)
    has to be there at `deadline` (by `time.monotonic`, which all processes of a machine share; on a cluster
    in seconds since the epoch); a full report takes the rest of the time. The table is `prepared_by` Spark's
    pipeline, or by Arrow without a JVM.
    """

    preset: Preset
    lanes: tuple[LanePlan, ...]
    trials: tuple[TrialSpec, ...]
    reasons: dict[str, str]
    master: str | None = None
    cloud: bool = False
    prepared_by: PreparedBy = "spark"
    num_ranks: int = 1
    h2o_gpus: bool = False
    time_limit: float | None = None
    deadline: float | None = None

    def training_ends(self, schema: TableSchema) -> float | None:
        """When all trials have to be done, by `time.monotonic`."""
        models = len({(trial.target, trial.model) for trial in self.trials})
        if self.deadline is None:
            return None
        since_epoch_s = time.time() - time.monotonic() if self.master is not None else 0.0
        return training_ends(self.deadline - since_epoch_s, schema, models, len(self.trials))

    def _seconds(self, branch: Branch) -> float | None:
        """The seconds for one training of a branch, if time is limited.

        Networks take all that they are planned for, so all folds have to fit; trees on few rows stop long
        before, and lose by the larger steps of a short plan.
        """
        if self.time_limit is None:
            return None
        planned = sharing_time if branch == "trees" else of_first_seed
        if self.cloud:  # all take turns
            return planned_s(self.time_limit, len(planned(self.trials)))
        per_lane = [len(planned(self.of(lane.index, branch))) for lane in self.lanes]
        return planned_s(self.time_limit, max(per_lane))

    def tree_device(self, engine: str) -> str:
        """Where a tree engine trains: some cannot use GPUs, and H2O cannot in a cloud of several nodes."""
        entry = ENGINES.find(engine)
        in_cloud = self.cloud and len(self.lanes) > 1 and entry.needs_h2o and not self.h2o_gpus
        return self.lanes[0].device if entry.on_gpu and not in_cloud else "cpu"

    def bytes_of_trees(self, network: TrialSpec, resolved: Resolved, schema: TableSchema) -> int:
        """What trees take of a network's GPU at the same time."""
        if network.branch != "neural" or self.cloud:
            return 0
        lanes = [lane for lane in network.gang if not self.lanes[lane].in_turn]
        beside = [resolved.of(model) for model in {t.model for lane in lanes for t in self.of(lane, "trees")}]
        trees = [parameters for parameters in beside if isinstance(parameters, TreesParameters)]
        return max((tree_bytes(schema, parameters) for parameters in trees), default=0)

    @property
    def needs_jvm(self) -> bool:
        return any(lane.context != "none" for lane in self.lanes)

    def devices(self, trial: TrialSpec) -> tuple[str, ...]:
        return tuple(self.lanes[lane].device for lane in trial.gang)

    @property
    def strategy(self) -> str:
        return next((trial.strategy for trial in self.trials if trial.engine == "torch"), "single")

    def visible_devices(self, lane: int, branch: Branch) -> str:
        """The devices that CUDA may see in a lane's worker: the lane's own, or all of its gang, in order."""
        lanes = sorted({member for trial in self.of(lane, branch) for member in trial.gang} | {lane})
        return ",".join(self.lanes[member].cuda_visible_devices or "" for member in lanes).strip(",")

    def resolved(self, config: RunConfig, size: TableSize) -> Resolved:
        """`config` with every open parameter filled in, now that the table is known."""
        return resolve(
            config,
            preset=self.preset,
            strategy=self.strategy,
            size=size,
            device=self.lanes[0].device,
            tree_device=self.tree_device,
            seconds={branch: self._seconds(branch) for branch in BRANCHES},
        )

    def of(self, lane: int, branch: Branch) -> tuple[TrialSpec, ...]:
        """The trials of one branch of one lane, in the order in which they run."""
        return tuple(trial for trial in self.trials if trial.lane == lane and trial.branch == branch)


def prepares_table(paths: RunPaths, lane: int, branch: Branch) -> bool:
    """Whether this worker makes the table."""
    return branch == "trees" and lane == 0 and not paths.schema.exists()


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
