"""The plan shares the machine out fairly, names every trial, and says why."""

from __future__ import annotations

from typing import Any

import pytest

from sparkgpu.config import toml as config_io
from sparkgpu.config.keys import RunConfig
from sparkgpu.errors import ConfigError, DeviceError
from sparkgpu.host.devices import Device, Machine, choose_devices
from sparkgpu.host.gpus import Gpu
from sparkgpu.plan.defaults import Resolved, resolve
from sparkgpu.plan.plan import GIB, Plan, make_plan
from sparkgpu.plan.tree_defaults import TableSize
from sparkgpu.table.schema import Task

GPUS = tuple(Gpu(index=i, uuid=f"GPU-{i}", title="NVIDIA H200", memory_bytes=139 * GIB) for i in range(4))


def plan_of(*assignments: str, cores: int = 8, memory: int = 64 * GIB, gpus: int = 0) -> Plan:
    settings = config_io.load(assignments=assignments)
    machine = Machine(cores=cores, memory_bytes=memory, gpus=GPUS[:gpus])
    devices = choose_devices(
        machine, gpus=settings.devices.gpus, cpu_lanes=settings.devices.cpu_lanes, environ={}
    )
    return make_plan(settings, machine, devices, tuple(21000 + 8 * i for i in range(len(devices))))


def names(plan: Plan) -> list[str]:
    return [trial.name for trial in plan.trials]


def resolved(asked: RunConfig, **settings: Any) -> Resolved:
    given = {"preset": "fast", "strategy": "single", "device": "cpu"} | {
        key: settings.pop(key) for key in ("preset", "strategy", "device") if key in settings
    }
    return resolve(asked, tree_device=lambda engine: given["device"], size=size_of(**settings), **given)


def size_of(task: Task = "binary", train_rows: int = 1000, num_features: int = 10) -> TableSize:
    classes = {"binary": 2, "multiclass": 5, "regression": 0}[task]
    return TableSize(task=task, train_rows=train_rows, num_features=num_features, num_classes=classes)


def test_where_h2o_fails_on_a_gpu_the_installed_engine_with_cuda_takes_its_place() -> None:
    machine = Machine(cores=16, memory_bytes=64 * GIB, gpus=GPUS)
    devices = choose_devices(machine, gpus="all", cpu_lanes=None, environ={})
    plan = make_plan(RunConfig(), machine, devices, (1, 2, 3, 4), cuda_engine="xgboost")
    trees = [trial for trial in plan.trials if trial.model == "trees"]
    assert all(
        (trial.engine, trial.probed, trial.otherwise) == ("h2o-xgboost", True, "xgboost") for trial in trees
    )
    assert not any(trial.probed for trial in plan.trials if trial.model == "neural")
    assert plan.reasons["engine"].endswith("; where that fails, xgboost")
    cpus = choose_devices(machine, gpus=None, cpu_lanes=2, environ={})
    assert not any(trial.probed for trial in make_plan(RunConfig(), machine, cpus, (1, 2)).trials)


def test_the_plan_says_that_networks_use_the_processors_unit_for_bfloat16() -> None:
    def reason(has_amx: bool, *assignments: str, gpus: str | None = None) -> str | None:
        machine = Machine(cores=4, memory_bytes=64 * GIB, gpus=GPUS[: 1 if gpus else 0], has_amx=has_amx)
        config = config_io.load(assignments=assignments)
        devices = choose_devices(machine, gpus=("0",) if gpus else None, cpu_lanes=None, environ={})
        return make_plan(config, machine, devices, (21000,)).reasons.get("precision")

    assert reason(True) == (
        "bfloat16 matrix products in TabM, for which this processor has a unit (AMX); its weights stay "
        "float32"
    )
    assert reason(False) is None and reason(True, gpus="0") is None
    assert reason(True, "neural.precision=float32") is None
    assert reason(True, "neural.architecture=mlp") is None
    assert reason(True, 'models=["trees"]') is None


def test_n_lanes_train_n_repeats_each_with_a_seed_and_a_lane_of_its_own() -> None:
    plan = plan_of("devices.cpu_lanes=3", "seed=40")
    assert names(plan) == [
        "trees-s40", "neural-s40", "trees-s41", "neural-s41", "trees-s42", "neural-s42",
    ]  # fmt: skip
    for trial in plan.trials:
        assert trial.seed == 40 + trial.lane
        assert trial.engine == {"trees": "h2o-xgboost", "neural": "torch"}[trial.model]
        assert (trial.fold, trial.strategy) == (None, "single")
    assert [lane.port_base for lane in plan.lanes] == [21000, 21008, 21016]
    assert plan.reasons["repeats"] == "3, one for each lane"


def test_the_best_preset_trains_several_seeds_for_the_blend_to_average() -> None:
    plan = plan_of("preset=best", "devices.cpu_lanes=1")
    assert names(plan) == ["trees-s7", "neural-s7", "trees-s8", "neural-s8", "trees-s9", "neural-s9"]
    assert plan.reasons["repeats"] == "3, whose predictions the blend averages, by the best preset"


def test_a_gang_is_one_network_on_the_devices_of_all_lanes() -> None:
    plan = plan_of("devices.cpu_lanes=4", "neural.strategy=ddp")
    assert names(plan) == ["trees-s7", "neural-s7"]
    trees, neural = plan.trials
    assert (trees.gang, trees.strategy) == ((0,), "single")
    assert (neural.lane, neural.gang, neural.strategy) == (0, (0, 1, 2, 3), "ddp")
    assert plan.reasons["repeats"] == "1: all devices train one network"


def test_one_repeat_over_several_devices_becomes_a_gang_by_itself() -> None:
    plan = plan_of("devices.cpu_lanes=2", "repeats=1")
    assert plan.strategy == "ddp"
    assert plan.reasons["strategy"] == "ddp: 1 repeat over 2 devices, each with a part of a batch"


def test_repeats_that_were_asked_for_go_round_the_lanes() -> None:
    plan = plan_of("devices.cpu_lanes=2", "repeats=3", "trees.engine=lightgbm")
    assert [(t.name, t.lane) for t in plan.trials if t.model == "trees"] == [
        ("trees-s7", 0), ("trees-s8", 1), ("trees-s9", 0),
    ]  # fmt: skip
    assert {t.engine for t in plan.trials} == {"lightgbm", "torch"}
    assert "repeats" not in plan.reasons
    assert [t.name for t in plan.of(0, "neural")] == ["neural-s7", "neural-s9"]


def test_every_fold_of_every_repeat_is_a_trial_and_folds_share_the_seed_of_their_repeat() -> None:
    plan = plan_of("devices.cpu_lanes=2", "split.folds=3")
    trees = [t for t in plan.trials if t.model == "trees"]
    assert [t.name for t in trees] == [
        "trees-s7-f0", "trees-s7-f1", "trees-s7-f2", "trees-s8-f0", "trees-s8-f1", "trees-s8-f2",
    ]  # fmt: skip
    assert [(t.seed, t.fold) for t in trees] == [(7, 0), (7, 1), (7, 2), (8, 0), (8, 1), (8, 2)]
    assert [t.lane for t in trees] == [0, 1, 0, 1, 0, 1]
    assert len(set(names(plan))) == len(plan.trials) == 12


def test_cores_are_shared_out_evenly_and_on_the_cpu_between_the_branches_too() -> None:
    for lanes, cores, threads, trees, neural in (
        (1, 8, 8, 4, 4), (2, 8, 4, 2, 2), (3, 10, 3, 2, 1), (8, 8, 1, 1, 1), (1, 2, 2, 1, 1),
    ):  # fmt: skip
        for lane in plan_of(f"devices.cpu_lanes={lanes}", cores=cores).lanes:
            assert (lane.threads, lane.tree_threads, lane.neural_threads) == (threads, trees, neural)


def test_on_a_gpu_both_branches_have_all_threads_of_the_lane() -> None:
    for lane in plan_of(gpus=2, cores=12).lanes:
        assert (lane.threads, lane.tree_threads, lane.neural_threads) == (6, 6, 6)


def test_memory_is_shared_out_evenly() -> None:
    for lanes in (1, 2, 3):
        found = {lane.heap_bytes for lane in plan_of(f"devices.cpu_lanes={lanes}").lanes}
        assert found == {64 * GIB // 4 // lanes}
    assert plan_of("devices.cpu_lanes=2").reasons["memory"] == (
        "8.0 GiB of Java heap a lane: a quarter of the lane's share of 64 GiB"
    )
    assert plan_of(memory=1024 * GIB).lanes[0].heap_bytes == 64 * GIB


def test_more_gpus_than_cores_still_give_every_lane_a_thread() -> None:
    assert {lane.tree_threads for lane in plan_of(gpus=4, cores=2).lanes} == {1}


def test_a_gpu_lane_sees_its_gpu_alone_and_a_cpu_lane_none() -> None:
    lanes = plan_of("devices.gpus=[2, 0]", gpus=3).lanes
    assert [(lane.device, lane.cuda_visible_devices, lane.device_name) for lane in lanes] == [
        ("cuda:2", "GPU-2", "NVIDIA H200"),
        ("cuda:0", "GPU-0", "NVIDIA H200"),
    ]
    assert [lane.cuda_visible_devices for lane in plan_of("devices.cpu_lanes=2", gpus=3).lanes] == ["", ""]


def test_the_preset_follows_the_device_unless_it_was_asked_for() -> None:
    assert (plan_of().preset, plan_of().reasons["preset"]) == ("fast", "fast, the default on CPU")
    plan = plan_of(gpus=1)
    assert (plan.preset, plan.reasons["preset"]) == ("balanced", "balanced, the default on GPUs")
    plan = plan_of("preset=best")
    assert plan.preset == "best"
    assert "preset" not in plan.reasons


def test_too_little_memory_is_refused_with_the_numbers() -> None:
    with pytest.raises(DeviceError) as caught:
        plan_of("devices.cpu_lanes=2", memory=4 * GIB)
    assert str(caught.value) == (
        "2 lanes: 4.0 GiB of memory leave 0.50 GiB of Java heap for each, and H2O needs at least 0.75; "
        "ask for fewer lanes."
    )
    assert plan_of("devices.cpu_lanes=1", memory=4 * GIB).lanes[0].heap_bytes == GIB


def test_a_plan_reads_back_from_json_as_it_was() -> None:
    plan = plan_of("devices.cpu_lanes=2", "split.folds=2")
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_resolving_fills_what_is_open_and_leaves_what_was_set() -> None:
    asked = config_io.load(
        assignments=["trees.ntrees=3", "trees.reg_lambda=0", "neural.dropout=0", "neural.epochs=2"]
    )
    found = resolved(asked)
    before, after = asked.model_dump(), found.config.model_dump()
    for section in ("trees", "neural"):
        open_keys = {key for key, value in after[section].items() if value is None}
        assert open_keys == ({"model_parallel"} if section == "neural" else set())
        for key, value in before[section].items():
            if value not in (None, "auto"):
                assert after[section][key] == value, key
    assert (found.trees.ntrees, found.trees.reg_lambda) == (3, 0)
    assert (found.neural.dropout, found.neural.epochs) == (0, 2)
    assert (found.config.preset, found.config.data.task) == ("fast", "binary")
    assert (found.trees.tree_method, found.neural.strategy) == ("hist", "single")
    for key in ("seed", "repeats", "split", "devices"):
        assert after[key] == before[key]


def test_resolving_twice_changes_nothing() -> None:
    settings = {"preset": "best", "task": "regression", "train_rows": 10**6, "device": "cuda:1"}
    once = resolved(RunConfig(), **settings)
    assert resolved(once.config, **settings) == once


def test_defaults_follow_task_preset_rows_and_device() -> None:
    empty = RunConfig()
    assert resolved(empty, task="multiclass").trees.min_rows < resolved(empty).trees.min_rows
    assert resolved(empty, device="cuda:0").trees.tree_method == "gpu_hist"
    fast, best = resolved(empty), resolved(empty, preset="best")
    assert fast.trees.ntrees < best.trees.ntrees
    assert fast.neural.epochs < best.neural.epochs
    # As many steps on a table of 20,000 rows as on one of 70,000, within bounds.
    epochs = [
        resolved(empty, train_rows=rows).neural.epochs for rows in (10, 20_000, 70_000, 99_999, 100_000)
    ]
    assert epochs == [120, 82, 47, 33, 6]
    # Muon brings more in fewer steps; with more than two classes it is the default.
    classes = resolved(empty, task="multiclass", train_rows=20_000).neural
    assert (classes.epochs, classes.muon_learning_rate) == (62, 0.02)
    without = config_io.load(assignments=["neural.muon_learning_rate=0"])
    assert resolved(without, task="multiclass", train_rows=20_000).neural.epochs == 82
    # With time and few rows, a number is predicted from cosines; otherwise that is no better.
    ways = [
        resolved(empty, preset=preset, task=task, train_rows=rows).neural
        for preset, task, rows in (
            ("balanced", "regression", 31_999), ("best", "regression", 100),
            ("balanced", "regression", 32_000), ("fast", "regression", 100),
            ("balanced", "binary", 100), ("balanced", "multiclass", 100),
        )
    ]  # fmt: skip
    assert [(way.number_embedding, way.muon_learning_rate) for way in ways] == [
        ("cosine", 0.01), ("cosine", 0.01), ("piecewise", 0), ("piecewise", 0),
        ("piecewise", 0), ("piecewise", 0.02),
    ]  # fmt: skip
    few = config_io.load(assignments=["neural.batch_size=100"])
    assert resolved(few, train_rows=10_000).neural.epochs == 65
    sizes = [resolved(empty, train_rows=rows).neural.batch_size for rows in (31_999, 32_000, 108_000)]
    assert sizes == [256, 512, 1024]


def test_trees_grow_by_leaves_on_a_cpu_and_by_levels_where_h2o_uses_a_gpu() -> None:
    on_cpu, on_gpu = (resolved(RunConfig(), device=device).trees for device in ("cpu", "cuda:0"))
    assert (on_cpu.grow_policy, on_cpu.max_depth, on_cpu.max_leaves) == ("lossguide", 8, 31)
    assert (on_gpu.grow_policy, on_gpu.max_depth, on_gpu.max_leaves) == ("depthwise", 6, 0)
    library = config_io.load(assignments=["trees.engine=xgboost"])
    assert resolved(library, device="cuda:0").trees.grow_policy == "lossguide"
    stays_on_cpu = config_io.load(assignments=["trees.tree_method=hist"])
    assert resolved(stays_on_cpu, device="cuda:0").trees.grow_policy == "lossguide"


def test_a_depth_that_the_user_sets_is_one_of_levels() -> None:
    found = resolved(config_io.load(assignments=["trees.max_depth=4"])).trees
    assert (found.grow_policy, found.max_depth, found.max_leaves) == ("depthwise", 4, 0)


def test_more_rows_get_finer_trees() -> None:
    sizes = [
        resolved(RunConfig(), train_rows=rows).trees.max_leaves for rows in (9_999, 10_000, 10**5, 10**6)
    ]
    assert sizes == [31, 63, 127, 255]


def test_few_rows_get_trees_in_two_sizes_unless_the_user_set_their_size_or_number() -> None:
    tries = [resolved(RunConfig(), train_rows=rows).trees.try_smaller for rows in (9_999, 10_000)]
    assert tries == [True, False]
    for asked in ("trees.max_leaves=20", "trees.max_depth=4", "trees.ntrees=50", "trees.engine=catboost"):
        assert not resolved(config_io.load(assignments=[asked])).trees.try_smaller, asked
    assert resolved(
        config_io.load(assignments=["trees.max_depth=4", "trees.try_smaller=true"])
    ).trees.try_smaller


def test_where_trees_are_costly_there_are_fewer_of_them_with_larger_steps() -> None:
    small, large = (resolved(RunConfig(), train_rows=rows, num_features=100).trees for rows in (10**3, 10**6))
    assert large.ntrees < small.ntrees
    assert small.learn_rate < large.learn_rate <= 0.3
    asked = config_io.load(assignments=["trees.ntrees=200"])
    assert resolved(asked).trees.learn_rate > small.learn_rate


def test_a_set_tree_method_stays_on_any_device() -> None:
    asked = config_io.load(assignments=["trees.tree_method=hist"])
    found = resolved(asked, device="cuda:0")
    assert found.trees.tree_method == "hist"


def test_lightgbm_on_a_gpu_lane_says_that_it_trains_on_the_cpu() -> None:
    plan = plan_of("trees.engine=lightgbm", gpus=2)
    assert plan.reasons["trees"] == (
        'on the CPU: lightgbm has no GPU build here; trees.engine = "xgboost" or "h2o-xgboost" use the GPU'
    )
    found = plan.resolved(config_io.load(assignments=["trees.engine=lightgbm"]), size_of())
    assert found.trees.tree_method == "hist"
    assert "trees" not in plan_of("trees.engine=xgboost", gpus=2).reasons
    assert "trees" not in plan_of("trees.engine=lightgbm").reasons


def test_gpus_that_no_model_of_a_run_would_use_are_refused() -> None:
    with pytest.raises(ConfigError, match="no model of this run would use a GPU"):
        plan_of("trees.engine=lightgbm", 'models=["trees"]', "devices.gpus=[0]", gpus=1)
    plan_of("trees.engine=lightgbm", 'models=["trees"]', gpus=1)  # taken because they are there: said alone


def test_lanes_need_one_port_base_each() -> None:
    machine = Machine(cores=2, memory_bytes=8 * GIB)
    cpu = Device(kind="cpu", name="cpu", title="CPU", visible="")
    with pytest.raises(ValueError, match="zip"):
        make_plan(RunConfig(), machine, (cpu, cpu), (21000,))
