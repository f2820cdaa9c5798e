"""The plan of a run on a Spark cluster, whose devices are its executors."""

from __future__ import annotations

from collections.abc import Sequence

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.models import TreesConfig
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.config.values import Preset
from sparkgpu.core.errors import ConfigError, DeviceError
from sparkgpu.core.plan.devices import check_tree_device
from sparkgpu.core.plan.plan import LanePlan, Plan, choose_preset, spread, with_contexts
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


def make_cluster_plan(config: RunConfig, executors: Sequence[Executor], *, master: str) -> Plan:
    """Plan the run over `executors`, of which there is at least one.

    Raises `DeviceError` if GPUs were asked for that the executors do not have or that would not be used.
    """
    assert executors
    on_gpu = all(executor.gpus for executor in executors)
    _check_devices(config, executors, on_gpu=on_gpu)
    _check_preparation(config)
    reasons = {"devices": _words(executors), "prepare": "by Spark's pipeline, on the executors"}
    preset = choose_preset(config, reasons, on_gpu=on_gpu)
    alone = config.cluster.lanes == "executors" or len(executors) == 1
    check_tree_device(config, reasons, on_gpu=on_gpu and alone)
    lanes = tuple(_lane(index, executor) for index, executor in enumerate(executors))
    if config.cluster.lanes == "executors":
        return _lane_each(config, lanes, preset, reasons, master)
    return _cloud(config, lanes, executors, preset, reasons, master)


def _check_devices(config: RunConfig, executors: Sequence[Executor], *, on_gpu: bool) -> None:
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
    in_cloud = config.cluster.lanes == "cloud" and len(executors) > 1
    for trees in (found for found in config.sections() if isinstance(found, TreesConfig)):
        _check_engine(config, trees, in_cloud=in_cloud, num_executors=len(executors))


def _check_preparation(config: RunConfig) -> None:
    if config.prepare.by == "arrow":
        raise ConfigError(
            'prepare.by = "arrow": on a cluster Spark holds the rows, so its pipeline makes the features. '
            "Leave it out."
        )


def _check_engine(config: RunConfig, trees: TreesConfig, *, in_cloud: bool, num_executors: int) -> None:
    engine = ENGINES.find(trees.engine_name)
    could = engine.gpu_in_cluster or config.cluster.h2o_gpus
    if in_cloud and trees.tree_method == "gpu_hist" and not could:
        raise DeviceError(
            f'trees.tree_method = "gpu_hist": in a cloud of {num_executors} nodes H2O XGBoost silently '
            'uses the CPU. Set cluster.lanes = "executors" (one node for each trial, on its own GPU), '
            'trees.engine = "xgboost" (one model over all GPUs), or trees.tree_method = "hist".'
        )
    if config.cluster.lanes == "cloud" and engine.on_cluster is None:
        raise ConfigError(
            f'trees.engine = "{engine.name}" trains on one machine; on a cluster set cluster.lanes = '
            '"executors", or trees.engine = "h2o-xgboost" or "xgboost" for one model over all executors.'
        )


def _words(executors: Sequence[Executor]) -> str:
    hosts = len({executor.host for executor in executors})
    cores = sum(executor.cores for executor in executors)
    gpus = sum(len(executor.gpus) for executor in executors)
    held = f"{counted(cores, 'core')}" + (f" and {counted(gpus, 'GPU')}" if gpus else "")
    return f"{counted(len(executors), 'executor')} on {counted(hosts, 'host')} with {held}"


def _lane(index: int, executor: Executor) -> LanePlan:
    """An executor as a lane; Spark, or the lane's own machine, decides its memory and ports."""
    on_gpu = bool(executor.gpus)
    threads = executor.cores
    return LanePlan(
        index=index,
        device=f"cuda:{executor.gpus[0]}" if on_gpu else "cpu",
        cuda_visible_devices=",".join(executor.gpus),
        device_name=f"executor {executor.id} on {executor.host}",
        threads=threads,
        tree_threads=threads if on_gpu else max(1, threads - threads // 2),
        neural_threads=threads if on_gpu else max(1, threads // 2),
        heap_bytes=0,
        port_base=0,
    )


def _cloud(
    config: RunConfig,
    lanes: tuple[LanePlan, ...],
    executors: Sequence[Executor],
    preset: Preset,
    reasons: dict[str, str],
    master: str,
) -> Plan:
    """One H2O cloud and one gang of ranks over all executors; trials one after the other."""
    num_ranks = sum(executor.slots for executor in executors)
    repeats = config.repeats or 1
    strategy = spread(
        config, preset, reasons, device=lanes[0].device, num_devices=num_ranks, trials=1, memory_bytes=None
    )
    if config.neural.strategy == "auto" and strategy == "ddp":
        reasons["strategy"] = f"ddp: {counted(num_ranks, 'rank')}, one in each slot of the executors"
    if STRATEGIES.find(strategy).devices == "threads":
        raise ConfigError(
            f'neural.strategy = "{strategy}" uses the devices of one process; on a cluster choose "ddp", or '
            "another that has one process for each."
        )
    if strategy == "single":
        num_ranks = 1
    engines = [found.engine_name for found in config.sections() if isinstance(found, TreesConfig)]
    if (
        lanes[0].device != "cpu"
        and len(lanes) > 1
        and not config.cluster.h2o_gpus
        and any(not ENGINES.find(engine).gpu_in_cluster for engine in engines)
    ):
        reasons["trees"] = (
            "on the CPU: in a cloud of several nodes H2O XGBoost does not use GPUs; cluster.lanes = "
            '"executors" does (one node for each trial), and so does trees.engine = "xgboost"'
        )
    # A rank has the cores of one task; H2O decides the threads of the trees beside it.
    ranked = tuple(
        lane.model_copy(update={"neural_threads": executor.task_cpus})
        for lane, executor in zip(lanes, executors, strict=True)
    )
    trials = lay_out_trials(config, repeats, len(lanes), strategy, cloud=True)
    return Plan(
        preset=preset,
        lanes=with_contexts(ranked, trials, "spark"),
        trials=trials,
        reasons=reasons,
        master=master,
        num_ranks=num_ranks,
        h2o_gpus=config.cluster.h2o_gpus,
    )


def _lane_each(
    config: RunConfig,
    lanes: tuple[LanePlan, ...],
    preset: Preset,
    reasons: dict[str, str],
    master: str,
) -> Plan:
    """A lane on each executor, and as many repeats as executors, like a machine with that many devices."""
    if config.neural.strategy not in ("auto", "single"):
        raise ConfigError(
            f'neural.strategy = "{config.neural.strategy}": with cluster.lanes = "executors" each network '
            'trains on one executor. Leave it out, or set cluster.lanes = "cloud".'
        )
    spread(config, preset, reasons, device=lanes[0].device, num_devices=1, trials=1, memory_bytes=None)
    repeats = config.repeats or (1 if config.split.folds else len(lanes))
    if config.repeats is None:
        reasons["repeats"] = f"{repeats}" + (
            ", the executors share the folds" if config.split.folds else ", one for each executor"
        )
    trials = lay_out_trials(config, repeats, len(lanes), "single")
    return Plan(
        preset=preset,
        lanes=with_contexts(lanes, trials, "arrow"),
        trials=trials,
        reasons=reasons,
        master=master,
    )
