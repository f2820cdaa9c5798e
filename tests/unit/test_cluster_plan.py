"""On a cluster the executors are the devices: what trains where, and what is refused before the start."""

from __future__ import annotations

import pytest

from sparkgpu.cluster.settings import cluster_settings
from sparkgpu.config import toml as config_io
from sparkgpu.errors import ConfigError, DeviceError
from sparkgpu.plan.executors import Executor, make_cluster_plan
from sparkgpu.plan.plan import Plan
from sparkgpu.plan.tree_defaults import TableSize

MASTER = "spark://head:7077"

SMALL = TableSize(task="binary", train_rows=1000, num_features=10, num_classes=2)


def executors(count: int, *, cores: int = 4, task_cpus: int = 1, gpus: int = 0) -> tuple[Executor, ...]:
    return tuple(
        Executor(
            id=str(index), host=f"host{index % 2}", cores=cores, task_cpus=task_cpus,
            gpus=tuple(str(gpu) for gpu in range(gpus)),
        )
        for index in range(count)
    )  # fmt: skip


def plan_of(*assignments: str, on: tuple[Executor, ...]) -> Plan:
    return make_cluster_plan(config_io.load(assignments=assignments), on, master=MASTER)


def test_by_default_all_executors_are_one_cloud_and_one_gang() -> None:
    plan = plan_of(on=executors(3))
    assert [trial.name for trial in plan.trials] == ["trees-s7", "neural-s7"]
    assert {trial.gang for trial in plan.trials} == {(0, 1, 2)}
    assert (plan.master, plan.num_ranks, plan.strategy) == (MASTER, 12, "ddp")
    assert plan.reasons["devices"] == "3 executors on 2 hosts with 12 cores"
    assert plan.reasons["strategy"] == "ddp: 12 ranks, one in each slot of the executors"


def test_a_rank_takes_the_cores_of_a_task_or_a_gpu() -> None:
    plan = plan_of(on=executors(2, cores=8, task_cpus=4))
    assert plan.num_ranks == 4
    assert [lane.neural_threads for lane in plan.lanes] == [4, 4]
    assert plan_of(on=executors(2, cores=8, gpus=1)).num_ranks == 2


def test_one_slot_trains_without_a_gang() -> None:
    plan = plan_of(on=executors(1, cores=1))
    assert (plan.num_ranks, plan.strategy) == (1, "single")


def test_the_trees_of_a_cloud_with_gpus_say_that_they_train_on_the_cpu() -> None:
    plan = plan_of(on=executors(2, gpus=1))
    assert plan.reasons["trees"].startswith(
        "on the CPU: in a cloud of several nodes H2O XGBoost does not use"
    )
    resolved = plan.resolved(config_io.load(), SMALL)
    assert resolved.trees.tree_method == "hist"


def test_a_switch_lets_h2o_try_the_gpus_of_a_cloud() -> None:
    asked = ("cluster.h2o_gpus=true", "trees.tree_method=gpu_hist")
    plan = plan_of(*asked, on=executors(2, gpus=1))
    assert "trees" not in plan.reasons
    assert plan.resolved(config_io.load(assignments=asked), SMALL).trees.tree_method == "gpu_hist"
    config = config_io.load(assignments=["cluster.h2o_gpus=true", f"cluster.master={MASTER}"]).cluster
    config = config.model_copy(update={"spark": {"spark.executor.extraJavaOptions": "-Dmine=1"}})
    settings = cluster_settings(config, {})
    assert settings is not None
    options = settings.spark["spark.executor.extraJavaOptions"]
    assert options == "-Dmine=1 -Dsys.ai.h2o.xgboost.multinode.gpu.enabled=true"


def test_one_xgboost_model_over_the_executors_uses_their_gpus() -> None:
    plan = plan_of("trees.engine=xgboost", on=executors(2, gpus=1))
    assert "trees" not in plan.reasons
    asked = config_io.load(assignments=["trees.engine=xgboost"])
    assert plan.resolved(asked, SMALL).trees.tree_method == "gpu_hist"


def test_lanes_on_executors_are_as_many_repeats_each_on_its_own_gpu() -> None:
    plan = plan_of("cluster.lanes=executors", on=executors(2, gpus=1))
    assert [(trial.name, trial.gang) for trial in plan.trials] == [
        ("trees-s7", (0,)), ("neural-s7", (0,)), ("trees-s8", (1,)), ("neural-s8", (1,)),
    ]  # fmt: skip
    resolved = plan.resolved(config_io.load(), SMALL)
    assert resolved.trees.tree_method == "gpu_hist"


def test_folds_go_round_the_executors() -> None:
    plan = plan_of("cluster.lanes=executors", "split.folds=3", on=executors(2))
    trees = [(trial.fold, trial.lane) for trial in plan.trials if trial.model == "trees"]
    assert trees == [(0, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize(
    ("assignments", "gpus", "error", "message"),
    [
        (
            ["trees.tree_method=gpu_hist"], 1, DeviceError,
            'trees.tree_method = "gpu_hist": in a cloud of 2 nodes H2O XGBoost silently uses the '
            'CPU. Set cluster.lanes = "executors" (one node for each trial, on its own GPU), trees.engine = '
            '"xgboost" (one model over all GPUs), or trees.tree_method = "hist".',

        ),
        (
            ["devices.gpus=all"], 0, DeviceError,
            "--gpus all: 2 executors on 2 hosts with 8 cores, not all with a GPU. Submit with --conf "
            "spark.executor.resource.gpu.amount=1 --conf spark.task.resource.gpu.amount=1.",
        ),
        (
            ["devices.cpu_lanes=2"], 0, ConfigError,
            "--gpus and --cpu-lanes name devices of one machine; on a cluster the executors own them. Set "
            "spark.executor.resource.gpu.amount and spark.task.resource.gpu.amount instead.",
        ),
        (
            ["trees.engine=lightgbm"], 0, ConfigError,
            'trees.engine = "lightgbm" trains on one machine; on a cluster set cluster.lanes = "executors", '
            'or trees.engine = "h2o-xgboost" or "xgboost" for one model over all executors.',

        ),
        (
            ["neural.strategy=dp"], 0, ConfigError,
            'neural.strategy = "dp" uses the devices of one process; on a cluster choose "ddp", or another '
            "that has one process for each.",
        ),
        (
            ["cluster.lanes=executors", "neural.strategy=ddp"], 0, ConfigError,
            'neural.strategy = "ddp": with cluster.lanes = "executors" each network trains on one executor. '
            'Leave it out, or set cluster.lanes = "cloud".',
        ),
    ],
)  # fmt: skip
def test_what_a_cluster_cannot_do_is_refused(
    assignments: list[str], gpus: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refused:
        plan_of(*assignments, on=executors(2, gpus=gpus))
    assert str(refused.value) == message
