"""The plan of a run on a Spark cluster, whose devices are its executors."""

from __future__ import annotations

from collections.abc import Sequence

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import NeuralConfig, auto_engine
from sparkgpu.core.config.registry.engines import ENGINES, EngineEntry
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.errors import ConfigError, DeviceError
from sparkgpu.core.plan.devices import check_tree_device, choose_strategy
from sparkgpu.core.plan.make_plan import (
    choose_preset,
    choose_repeats,
    context_of,
    explain_limit,
    explain_rules,
    threads_of_branches,
)
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.trials import lay_out_trials
from sparkgpu.core.rundir.files import Record
from sparkgpu.core.words import counted


class Executor(Record):
    """One executor of the cluster: its cores, the cores of a task, and the addresses of its GPUs."""

    id: str
    host: str
    cores: int
    task_cpus: int
    gpus: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """The number of ranks that it can hold: one on each GPU, or one for each task's cores."""
        return len(self.gpus) or max(1, self.cores // self.task_cpus)

    @property
    def device(self) -> str:
        return f"cuda:{self.gpus[0]}" if self.gpus else "cpu"


_CLOUD_ENGINE = "xgboost"


def with_engine_of_cloud(config: RunConfig) -> tuple[RunConfig, dict[str, str]]:
    """`config` with the engine that trains in place of "auto" where executors are a cloud, and the reason.

    H2O stays the engine of every lane (benchmarks/results/2026-11-25-cluster-trees.md).
    """
    if config.trees.engine != "auto" or config.cluster.lanes != "cloud" or "trees" not in config.model_names:
        return config, {}
    if command := ENGINES.find(_CLOUD_ENGINE).missing:
        return config, {
            "engine": f"{auto_engine()}, since {_CLOUD_ENGINE} is not installed; run `{command}` here and on "
            "the executors"
        }
    trees = config.trees.model_copy(update={"engine": _CLOUD_ENGINE})
    reason = f"{_CLOUD_ENGINE}, whose ranks train one model over the executors"
    return config.model_copy(update={"trees": trees}), {"engine": reason}


def make_cluster_plan(
    config: RunConfig, executors: Sequence[Executor], *, master: str, began: float = 0.0
) -> Plan:
    """Plan the run, which `began` at that second since the epoch, over `executors`, of which there is one.

    With ``cluster.lanes = "executors"`` each is a lane, like a device of one machine. Otherwise all of them
    train each model together that can be spread, and trials run one after the other, H2O's beside the rest.
    Raises `DeviceError` if GPUs were asked for that the executors do not have or that would not be used.
    """
    assert executors
    on_gpu = all(executor.gpus for executor in executors)
    has_cloud = config.cluster.lanes == "cloud"
    _check(config, executors, on_gpu=on_gpu)
    reasons = {"devices": _words(executors), "prepare": "by Spark's pipeline, on the executors"}
    preset = choose_preset(config, reasons, on_gpu=on_gpu)
    check_tree_device(config, reasons, on_gpu=on_gpu and not (has_cloud and len(executors) > 1))
    num_ranks = sum(executor.slots for executor in executors) if has_cloud else 1
    strategy = choose_strategy(
        config, preset, reasons, device=executors[0].device, num_devices=num_ranks, trials=1,
        memory_bytes=None,
    )  # fmt: skip
    repeats = config.repeats or 1
    if has_cloud:
        _check_cloud(config, strategy, num_ranks, executors, reasons)
    explain_rules(config, reasons)
    within_s = explain_limit(config, reasons)
    if config.repeats is None and within_s is not None:
        repeats = choose_repeats(config, preset, strategy, len(executors), reasons)
    elif not has_cloud and config.repeats is None and config.split.folds:
        reasons["repeats"] = "1, the executors share the folds"
    elif not has_cloud and config.repeats is None:
        repeats = len(executors)
        reasons["repeats"] = f"{repeats}, one for each executor"
    trials = lay_out_trials(config, repeats, len(executors), strategy, cloud=has_cloud)
    lanes = []
    for index, executor in enumerate(executors):
        tree_threads, neural_threads = threads_of_branches(executor.cores, shared=not executor.gpus)
        lanes.append(
            LanePlan(
                index=index,
                device=executor.device,
                cuda_visible_devices=",".join(executor.gpus),
                device_name=f"executor {executor.id} on {executor.host}",
                threads=executor.cores,
                tree_threads=tree_threads,
                # A rank of a cloud has the cores of one task; H2O decides the threads of the trees beside it.
                neural_threads=executor.task_cpus if has_cloud else neural_threads,
                context=context_of(index, trials, "spark" if has_cloud else "arrow"),
            )
        )
    return Plan(
        preset=preset,
        lanes=tuple(lanes),
        trials=trials,
        reasons=reasons,
        master=master,
        cloud=has_cloud,
        time_limit=config.time_limit,
        deadline=None if within_s is None else began + within_s,
        num_ranks=1 if strategy == "single" else num_ranks,
        h2o_gpus=has_cloud and config.cluster.h2o_gpus,
    )


def _check(config: RunConfig, executors: Sequence[Executor], *, on_gpu: bool) -> None:
    if config.devices.cpu_lanes is not None or config.devices.gpus not in (None, "all"):
        raise ConfigError(
            "--gpus and --cpu-lanes name devices of one machine; on a cluster the executors own them. Set "
            "spark.executor.resource.gpu.amount and spark.task.resource.gpu.amount instead."
        )
    if config.devices.gpus == "all" and not on_gpu:
        raise DeviceError(
            f"--gpus all: {_words(executors)}, not all with a GPU. Submit with "
            "--conf spark.executor.resource.gpu.amount=1 --conf spark.task.resource.gpu.amount=1."
        )
    for trees in config.trees_by_name.values() if config.cluster.lanes == "cloud" else ():
        leaves = len(executors) > 1 and _leaves_gpus(config, ENGINES.find(trees.engine_name))
        if leaves and trees.tree_method == "gpu_hist":
            raise DeviceError(
                f'trees.tree_method = "gpu_hist": in a cloud of {len(executors)} nodes H2O XGBoost silently '
                'uses the CPU. Set cluster.lanes = "executors" (one node for each trial, on its own GPU), '
                'trees.engine = "xgboost" (one model over all GPUs), or trees.tree_method = "hist".'
            )
    if config.prepare.by == "arrow":
        raise ConfigError(
            'prepare.by = "arrow": on a cluster Spark holds the rows, so its pipeline makes the features. '
            "Leave it out."
        )
    if config.cluster.lanes == "executors" and config.neural.strategy not in ("auto", "single"):
        raise ConfigError(
            f'neural.strategy = "{config.neural.strategy}": with cluster.lanes = "executors" each network '
            'trains on one executor. Leave it out, or set cluster.lanes = "cloud".'
        )


def _leaves_gpus(config: RunConfig, engine: EngineEntry) -> bool:
    return engine.needs_h2o and not config.cluster.h2o_gpus


def _words(executors: Sequence[Executor]) -> str:
    hosts = len({executor.host for executor in executors})
    cores = sum(executor.cores for executor in executors)
    gpus = sum(len(executor.gpus) for executor in executors)
    held = f"{counted(cores, 'core')}" + (f" and {counted(gpus, 'GPU')}" if gpus else "")
    return f"{counted(len(executors), 'executor')} on {counted(hosts, 'host')} with {held}"


def _check_cloud(
    config: RunConfig, strategy: str, num_ranks: int, executors: Sequence[Executor], reasons: dict[str, str]
) -> None:
    """Refuse a strategy that stays in one process, and say what trains where."""
    if config.neural.strategy == "auto" and strategy == "ddp":
        reasons["strategy"] = f"ddp: {counted(num_ranks, 'rank')}, one in each slot of the executors"
    if STRATEGIES.find(strategy).devices == "threads":
        raise ConfigError(
            f'neural.strategy = "{strategy}" uses the devices of one process; on a cluster choose "ddp", or '
            "another that has one process for each."
        )
    for name in config.model_names:
        section = config.section(name)
        if isinstance(section, NeuralConfig):
            continue
        engine = ENGINES.find(section.engine_name)
        if not engine.spreads:
            reasons[name] = f"on one executor: {engine.name} cannot be spread over several"
        elif executors[0].gpus and len(executors) > 1 and _leaves_gpus(config, engine):
            reasons[name] = (
                "on the CPU: in a cloud of several nodes H2O XGBoost does not use GPUs; cluster.lanes = "
                '"executors" does (one node for each trial), and so does trees.engine = "xgboost"'
            )
