"""On a cluster the executors are the devices: what trains where, and what is refused before the start."""

from __future__ import annotations

import pytest

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import ConfigError, DeviceError
from sparkgpu.core.plan.executors import Executor, make_cluster_plan, with_engine_of_cloud
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.lanes.cluster.settings import cluster_settings

MASTER = "spark://head:7077"
H2O = "trees.engine=h2o-xgboost"
LARGE = TableSize(task="binary", train_rows=10**6, num_features=100, num_classes=2)
SMALL = TableSize(task="binary", train_rows=1000, num_features=10, num_classes=2)


def executors(count: int, *, cores: int = 4, task_cpus: int = 1, gpus: int = 0) -> tuple[Executor, ...]:
    own = tuple(str(gpu) for gpu in range(gpus))
    return tuple(
        Executor(id=str(index), host=f"host{index % 2}", cores=cores, task_cpus=task_cpus, gpus=own)
        for index in range(count)
    )


def plan_of(*assignments: str, on: tuple[Executor, ...]) -> Plan:
    config, _ = with_engine_of_cloud(config_io.load(assignments=assignments))
    return make_cluster_plan(config, on, master=MASTER, began=1000.0)


def test_by_default_all_executors_are_one_cloud_and_one_gang() -> None:
    plan = plan_of(on=executors(3))
    assert [trial.name for trial in plan.trials] == ["trees-s7", "neural-s7"]
    assert {trial.gang for trial in plan.trials} == {(0, 1, 2)}
    assert plan.master == MASTER
    assert plan.reasons["devices"] == "3 executors on 2 hosts with 12 cores"
    assert plan.reasons["strategy"] == "ddp: 12 ranks, one in each slot of the executors"


@pytest.mark.parametrize(
    ("on", "ranks", "strategy", "threads"),
    [
        (executors(3), 12, "ddp", 1),
        (executors(2, cores=8, task_cpus=4), 4, "ddp", 4),
        (executors(2, cores=8, gpus=1), 2, "ddp", None),
        (executors(1, cores=1), 1, "single", None),
    ],
)
def test_a_rank_takes_the_cores_of_a_task_or_a_gpu(
    on: tuple[Executor, ...], ranks: int, strategy: str, threads: int | None
) -> None:
    plan = plan_of(on=on)
    assert (plan.num_ranks, plan.strategy) == (ranks, strategy)
    assert threads is None or {lane.neural_threads for lane in plan.lanes} == {threads}


@pytest.mark.parametrize(
    ("asked", "method", "why"),
    [
        ((H2O,), "hist", "on the CPU: in a cloud of several nodes H2O XGBoost does not use"),
        ((H2O, "cluster.h2o_gpus=true", "trees.tree_method=gpu_hist"), "gpu_hist", ""),
        ((), "gpu_hist", ""),
        (("cluster.lanes=executors",), "gpu_hist", ""),
    ],
)
def test_trees_use_the_gpus_of_executors_unless_they_are_a_cloud_of_h2o(
    asked: tuple[str, ...], method: str, why: str
) -> None:
    plan = plan_of(*asked, on=executors(2, gpus=1))
    assert plan.reasons.get("trees", "").startswith(why) and ("trees" in plan.reasons) == bool(why)
    config, _ = with_engine_of_cloud(config_io.load(assignments=asked))
    assert plan.resolved(config, SMALL).trees.tree_method == method


def test_the_switch_that_lets_h2o_try_the_gpus_of_a_cloud_reaches_its_jvms() -> None:
    config = config_io.load(assignments=["cluster.h2o_gpus=true", f"cluster.master={MASTER}"]).cluster
    config = config.model_copy(update={"spark": {"spark.executor.extraJavaOptions": "-Dmine=1"}})
    settings = cluster_settings(config, {})
    assert settings is not None
    options = settings.spark["spark.executor.extraJavaOptions"]
    assert options == "-Dmine=1 -Dsys.ai.h2o.xgboost.multinode.gpu.enabled=true"


def test_lanes_on_executors_are_as_many_repeats_and_folds_go_round_them() -> None:
    plan = plan_of("cluster.lanes=executors", on=executors(2, gpus=1))
    assert [(trial.name, trial.gang) for trial in plan.trials] == [
        ("trees-s7", (0,)), ("neural-s7", (0,)), ("trees-s8", (1,)), ("neural-s8", (1,)),
    ]  # fmt: skip
    plan = plan_of("cluster.lanes=executors", "split.folds=3", on=executors(2))
    trees = [(trial.fold, trial.lane) for trial in plan.trials if trial.model == "trees"]
    assert trees == [(0, 0), (1, 1), (2, 0)]


def test_one_model_over_executors_is_of_xgboost_and_each_lane_has_h2os() -> None:
    assert {trial.engine for trial in plan_of(on=executors(2)).trials} == {"xgboost", "torch"}
    lanes = plan_of("cluster.lanes=executors", on=executors(2))
    assert {trial.engine for trial in lanes.trials} == {"h2o-xgboost", "torch"}
    asked = config_io.load(assignments=["trees.engine=lightgbm"])
    assert with_engine_of_cloud(asked) == (asked, {})
    _, why = with_engine_of_cloud(config_io.load())
    assert why["engine"].startswith("xgboost, ")


def test_an_engine_that_cannot_be_spread_trains_on_one_executor_and_the_plan_says_so() -> None:
    plan = plan_of('models=["trees", "neural", "lightgbm", "tabicl", "mlp"]', on=executors(3))
    assert {trial.model: trial.gang for trial in plan.trials} == {
        "trees": (0, 1, 2), "neural": (0, 1, 2), "lightgbm": (0,), "tabicl": (0,), "mlp": (0, 1, 2),
    }  # fmt: skip
    assert {trial.lane for trial in plan.trials} == {0}
    for name in ("lightgbm", "tabicl"):
        assert plan.reasons[name] == f"on one executor: {name} cannot be spread over several"
    assert "mlp" not in plan.reasons


def test_a_time_limit_counts_from_the_start_and_is_shared_by_models_that_take_turns() -> None:
    limit = ("time_limit=10m", "report.level=short")
    plan = plan_of(*limit, on=executors(2))
    assert plan.deadline == 1600.0
    assert len({trial.seed for trial in plan.trials}) > 1
    alone = plan_of(*limit, 'models=["trees"]', on=executors(2))

    def ntrees(found: Plan) -> int:
        config, _ = with_engine_of_cloud(config_io.load(assignments=limit))
        return found.resolved(config, LARGE).trees.ntrees

    assert 0.4 < ntrees(plan) / ntrees(alone) < 0.6


@pytest.mark.parametrize(
    ("assignments", "gpus", "error", "found", "advice"),
    [
        ([H2O, "trees.tree_method=gpu_hist"], 1, DeviceError,
         "in a cloud of 2 nodes H2O XGBoost silently uses the CPU", 'Set cluster.lanes = "executors"'),
        (["devices.gpus=all"], 0, DeviceError, "2 executors on 2 hosts with 8 cores, not all with a GPU",
         "--conf spark.executor.resource.gpu.amount=1"),
        (["devices.cpu_lanes=2"], 0, ConfigError, "--gpus and --cpu-lanes name devices of one machine",
         "Set spark.executor.resource.gpu.amount"),
        (["neural.strategy=dp"], 0, ConfigError, 'neural.strategy = "dp" uses the devices of one process',
         'choose "ddp"'),
        (["cluster.lanes=executors", "neural.strategy=ddp"], 0, ConfigError,
         "each network trains on one executor", 'or set cluster.lanes = "cloud"'),
    ],
)  # fmt: skip
def test_what_a_cluster_cannot_do_is_refused(
    assignments: list[str], gpus: int, error: type[Exception], found: str, advice: str
) -> None:
    with pytest.raises(error) as refused:
        plan_of(*assignments, on=executors(2, gpus=gpus))
    assert found in str(refused.value) and advice in str(refused.value)
