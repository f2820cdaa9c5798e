"""The plan shares the machine out fairly, names every trial, and says why."""

from __future__ import annotations

from typing import Any

import pytest

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import ConfigError, DeviceError
from sparkgpu.core.host.devices import Machine, choose_devices
from sparkgpu.core.host.gpus import Gpu
from sparkgpu.core.plan.defaults import Resolved, resolve
from sparkgpu.core.plan.make_plan import GIB, make_plan
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.table.schema import Task
from sparkgpu.runs.provenance import check_engines

GPUS = tuple(Gpu(index=i, uuid=f"GPU-{i}", title="NVIDIA H200", memory_bytes=139 * GIB) for i in range(4))


def load(*assignments: str) -> RunConfig:
    return config_io.load(assignments=assignments)


def plan_of(
    *assignments: str, cores: int = 8, memory: int = 64 * GIB, gpus: int = 0, has_amx: bool = False,
    **more: Any,
) -> Plan:  # fmt: skip
    settings = load(*assignments)
    machine = Machine(cores=cores, memory_bytes=memory, gpus=GPUS[:gpus], has_amx=has_amx)
    devices = choose_devices(
        machine, gpus=settings.devices.gpus, cpu_lanes=settings.devices.cpu_lanes, environ={}
    )
    return make_plan(settings, machine, devices, tuple(21000 + 8 * i for i in range(len(devices))), **more)


def names(plan: Plan) -> list[str]:
    return [trial.name for trial in plan.trials]


def resolved(*assignments: str, asked: RunConfig | None = None, **settings: Any) -> Resolved:
    given = {"preset": "fast", "strategy": "single", "device": "cpu"} | {
        key: settings.pop(key) for key in ("preset", "strategy", "device") if key in settings
    }
    return resolve(
        asked or load(*assignments), tree_device=lambda engine: given["device"], size=size_of(**settings),
        **given,
    )  # fmt: skip


def size_of(task: Task = "binary", train_rows: int = 1000, num_features: int = 10) -> TableSize:
    classes = {"binary": 2, "multiclass": 5, "regression": 0}[task]
    return TableSize(task=task, train_rows=train_rows, num_features=num_features, num_classes=classes)


def test_where_h2o_fails_on_a_gpu_the_installed_engine_with_cuda_takes_its_place() -> None:
    plan = plan_of("devices.gpus=all", gpus=4, cuda_engine="xgboost")
    for trial in plan.trials:
        is_tree = trial.model == "trees"
        assert (trial.probed, trial.otherwise) == (is_tree, "xgboost" if is_tree else None)
    assert plan.reasons["engine"].endswith("; where that fails, xgboost")
    assert not any(trial.probed for trial in plan_of("devices.cpu_lanes=2").trials)
    known = plan_of("devices.gpus=all", gpus=4, cuda_engine="xgboost", proven=True)
    assert not any(trial.probed or trial.otherwise for trial in known.trials)
    assert known.reasons["engine"] == "h2o-xgboost, which trained on such a GPU with this driver before"


def test_the_plan_says_that_networks_use_the_processors_unit_for_bfloat16() -> None:
    assert "AMX" in plan_of(has_amx=True).reasons["precision"]
    for other in ("neural.precision=float32", "neural.architecture=mlp", 'models=["trees"]'):
        assert "precision" not in plan_of(other, has_amx=True).reasons, other
    assert "precision" not in plan_of().reasons | plan_of(has_amx=True, gpus=1).reasons


def test_n_lanes_train_n_repeats_each_with_a_seed_and_a_lane_of_its_own() -> None:
    plan = plan_of("devices.cpu_lanes=3", "seed=40")
    assert names(plan) == [
        "trees-s40", "neural-s40", "trees-s41", "neural-s41", "trees-s42", "neural-s42",
    ]  # fmt: skip
    for trial in plan.trials:
        assert (trial.seed, trial.fold, trial.strategy) == (40 + trial.lane, None, "single")
        assert trial.engine == {"trees": "h2o-xgboost", "neural": "torch"}[trial.model]
    assert [lane.port_base for lane in plan.lanes] == [21000, 21008, 21016]
    assert plan.reasons["repeats"] == "3, one for each lane"
    best = plan_of("preset=best", "devices.cpu_lanes=1")
    assert names(best)[::2] == ["trees-s7", "trees-s8", "trees-s9"]  # whose predictions the blend averages
    assert best.reasons["repeats"].startswith("3, ")


@pytest.mark.parametrize("asked", [("devices.cpu_lanes=4", "neural.strategy=ddp"), ("devices.cpu_lanes=2",)])
def test_one_network_on_the_devices_of_all_lanes_is_a_gang_asked_for_or_not(asked: tuple[str, ...]) -> None:
    plan = plan_of(*asked, *([] if len(asked) == 2 else ["repeats=1"]))
    trees, neural = plan.trials
    assert (trees.gang, trees.strategy) == ((0,), "single")
    assert (neural.lane, neural.gang, neural.strategy) == (0, tuple(range(len(plan.lanes))), "ddp")
    assert plan.reasons["repeats" if len(asked) == 2 else "strategy"].startswith(("1: ", "ddp: 1 repeat"))


def test_repeats_and_folds_go_round_the_lanes_and_folds_share_the_seed_of_their_repeat() -> None:
    plan = plan_of("devices.cpu_lanes=2", "repeats=3", "trees.engine=lightgbm")
    assert [(t.name, t.lane) for t in plan.trials if t.model == "trees"] == [
        ("trees-s7", 0), ("trees-s8", 1), ("trees-s9", 0),
    ]  # fmt: skip
    assert {t.engine for t in plan.trials} == {"lightgbm", "torch"} and "repeats" not in plan.reasons
    assert [t.name for t in plan.of(0, "neural")] == ["neural-s7", "neural-s9"]
    folds = plan_of("devices.cpu_lanes=2", "split.folds=3")
    assert [(t.name, t.seed, t.fold, t.lane) for t in folds.trials if t.model == "trees"] == [
        ("trees-s7-f0", 7, 0, 0), ("trees-s7-f1", 7, 1, 1), ("trees-s7-f2", 7, 2, 0),
        ("trees-s8-f0", 8, 0, 1), ("trees-s8-f1", 8, 1, 0), ("trees-s8-f2", 8, 2, 1),
    ]  # fmt: skip
    assert Plan.model_validate_json(folds.model_dump_json()) == folds


def test_cores_and_memory_are_shared_out_evenly_and_on_the_cpu_cores_between_the_branches_too() -> None:
    for lanes, cores, threads, trees, neural in (
        (1, 8, 8, 4, 4), (3, 10, 3, 2, 1), (8, 8, 1, 1, 1), (1, 2, 2, 1, 1),
    ):  # fmt: skip
        for lane in plan_of(f"devices.cpu_lanes={lanes}", cores=cores).lanes:
            assert (lane.threads, lane.tree_threads, lane.neural_threads) == (threads, trees, neural)
            assert lane.heap_bytes == 64 * GIB // 4 // lanes
    for lane in plan_of(gpus=2, cores=12).lanes:
        assert (lane.threads, lane.tree_threads, lane.neural_threads) == (6, 6, 6)
    assert {lane.tree_threads for lane in plan_of(gpus=4, cores=2).lanes} == {1}
    assert plan_of("devices.cpu_lanes=2").reasons["memory"].startswith("8.0 GiB of Java heap a lane")
    assert plan_of(memory=1024 * GIB).lanes[0].heap_bytes == 64 * GIB
    with pytest.raises(DeviceError, match=r"4\.0 GiB .* 0\.50 GiB .* at least 0\.75; ask for fewer lanes"):
        plan_of("devices.cpu_lanes=2", memory=4 * GIB)
    assert plan_of("devices.cpu_lanes=1", memory=4 * GIB).lanes[0].heap_bytes == GIB
    without = plan_of("devices.cpu_lanes=1", "trees.engine=lightgbm", memory=GIB)
    assert without.lanes[0].heap_bytes == 0 and "memory" not in without.reasons


def test_a_gpu_lane_sees_its_gpu_alone_and_a_cpu_lane_none() -> None:
    lanes = plan_of("devices.gpus=[2, 0]", gpus=3).lanes
    assert [(lane.device, lane.cuda_visible_devices, lane.device_name) for lane in lanes] == [
        ("cuda:2", "GPU-2", "NVIDIA H200"), ("cuda:0", "GPU-0", "NVIDIA H200"),
    ]  # fmt: skip
    assert [lane.cuda_visible_devices for lane in plan_of("devices.cpu_lanes=2", gpus=3).lanes] == ["", ""]


def test_the_preset_follows_the_device_unless_it_was_asked_for() -> None:
    for plan, preset, reason in (
        (plan_of(), "fast", "fast, the default on CPU"),
        (plan_of(gpus=1), "balanced", "balanced, the default on GPUs"),
        (plan_of("preset=best"), "best", None),
    ):
        assert (plan.preset, plan.reasons.get("preset")) == (preset, reason)


def test_resolving_fills_what_is_open_and_leaves_what_was_set() -> None:
    asked = load("trees.ntrees=3", "trees.reg_lambda=0", "neural.dropout=0", "neural.epochs=2")
    found = resolved(asked=asked)
    before, after = asked.model_dump(), found.config.model_dump()
    for section in ("trees", "neural"):
        open_keys = {key for key, value in after[section].items() if value is None}
        assert open_keys == ({"model_parallel"} if section == "neural" else set())
        for key, value in before[section].items():
            assert value in (None, "auto") or after[section][key] == value, key
    assert (found.config.preset, found.config.data.task) == ("fast", "binary")
    assert (found.trees.tree_method, found.neural.strategy) == ("hist", "single")
    for key in ("seed", "repeats", "split", "devices"):
        assert after[key] == before[key]
    settings = {"preset": "best", "task": "regression", "train_rows": 10**6, "device": "cuda:1"}
    once = resolved(**settings)
    assert resolved(asked=once.config, **settings) == once


def test_the_defaults_of_networks_follow_task_preset_and_rows() -> None:
    assert resolved().neural.epochs < resolved(preset="best").neural.epochs
    # As many steps on a table of 20,000 rows as on one of 10,000, as many operations at most on a larger one.
    sizes = (10, 20_000, 70_000, 99_999, 100_000)
    assert [resolved(train_rows=rows).neural.epochs for rows in sizes] == [120, 82, 44, 31, 6]
    assert resolved("neural.batch_size=100", train_rows=10_000).neural.epochs == 65
    sizes = (31_999, 32_000, 108_000)
    assert [resolved(train_rows=rows).neural.batch_size for rows in sizes] == [256, 512, 1024]
    # Muon brings more in fewer steps; with more than two classes it is the default.
    classes = resolved(task="multiclass", train_rows=20_000).neural
    assert (classes.epochs, classes.muon_learning_rate) == (62, 0.02)
    without = resolved("neural.muon_learning_rate=0", task="multiclass", train_rows=20_000)
    assert without.neural.epochs == 82
    # With a number to predict and few rows, Muon needs few steps, which early stopping does not end.
    number = resolved(task="regression", train_rows=14_000).neural
    assert (number.epochs, number.patience, number.members) == (34, 40, 4)
    few, more = resolved(train_rows=9_999).neural, resolved(train_rows=10_000).neural
    assert (few.members, more.members) == (8, 4)


def test_the_columns_of_a_table_limit_the_epochs_of_fast() -> None:
    narrow, wide = (resolved(train_rows=90_000, num_features=count).neural.epochs for count in (10, 90))
    assert narrow > 2 * wide
    thorough = [resolved(preset="balanced", num_features=count).neural.epochs for count in (10, 90)]
    assert thorough[0] == thorough[1]


@pytest.mark.parametrize(
    ("preset", "task", "rows", "embedding", "muon"),
    [
        ("balanced", "regression", 31_999, "cosine", 0.01), ("best", "regression", 100, "cosine", 0.01),
        ("balanced", "regression", 32_000, "piecewise", 0), ("fast", "regression", 100, "piecewise", 0.01),
        ("fast", "regression", 32_000, "piecewise", 0), ("fast", "binary", 100, "piecewise", 0),
        ("balanced", "binary", 100, "piecewise", 0), ("balanced", "multiclass", 100, "piecewise", 0.02),
    ],
)  # fmt: skip
def test_with_time_and_few_rows_a_number_is_predicted_from_cosines(
    preset: str, task: Task, rows: int, embedding: str, muon: float
) -> None:
    found = resolved(preset=preset, task=task, train_rows=rows).neural
    assert (found.number_embedding, found.muon_learning_rate) == (embedding, muon)


@pytest.mark.parametrize(
    ("asked", "device", "grown"),
    [
        ((), "cpu", ("lossguide", 8, 31)),
        ((), "cuda:0", ("depthwise", 6, 0)),  # where H2O uses a GPU
        (("trees.engine=xgboost",), "cuda:0", ("lossguide", 8, 31)),
        (("trees.tree_method=hist",), "cuda:0", ("lossguide", 8, 31)),
        (("trees.max_depth=4",), "cpu", ("depthwise", 4, 0)),
    ],
)
def test_trees_grow_by_leaves_unless_h2o_uses_a_gpu_or_the_user_sets_a_depth(
    asked: tuple[str, ...], device: str, grown: tuple[str, int, int]
) -> None:
    found = resolved(*asked, device=device).trees
    assert (found.grow_policy, found.max_depth, found.max_leaves) == grown
    on_gpu = device == "cuda:0" and "trees.tree_method=hist" not in asked
    assert found.tree_method == ("gpu_hist" if on_gpu else "hist")


def test_trees_follow_task_preset_and_rows() -> None:
    assert resolved(task="multiclass").trees.min_rows < resolved().trees.min_rows
    assert resolved().trees.ntrees < resolved(preset="best").trees.ntrees
    sizes = (9_999, 10_000, 10**5, 10**6)
    assert [resolved(train_rows=rows).trees.max_leaves for rows in sizes] == [31, 63, 127, 255]
    small, large = (resolved(train_rows=rows, num_features=100).trees for rows in (10**3, 10**6))
    assert large.ntrees < small.ntrees  # where they are costly, there are fewer with larger steps
    assert small.learn_rate < large.learn_rate <= 0.3
    assert resolved("trees.ntrees=200").trees.learn_rate > small.learn_rate


def test_few_rows_get_trees_in_two_sizes_unless_the_user_set_their_size_or_number() -> None:
    assert [resolved(train_rows=rows).trees.try_smaller for rows in (9_999, 10_000)] == [True, False]
    for asked in ("trees.max_leaves=20", "trees.max_depth=4", "trees.ntrees=50", "trees.engine=catboost"):
        assert not resolved(asked).trees.try_smaller, asked
    assert resolved("trees.max_depth=4", "trees.try_smaller=true").trees.try_smaller


def test_of_several_targets_trees_have_a_trial_for_each_and_networks_that_can_have_one_for_all() -> None:
    plan = plan_of(
        'data.target=["net price", "sold"]', 'models=["trees", "neural", {name="r", architecture="realmlp"}]',
        "devices.cpu_lanes=2", "repeats=1",
    )  # fmt: skip
    assert names(plan) == [
        "net_price:trees-s7", "sold:trees-s7", "neural-s7", "net_price:r-s7", "sold:r-s7",
    ]  # fmt: skip
    found = [(trial.target, trial.own_name, trial.lane) for trial in plan.trials[:3]]
    assert found == [("net_price", "trees-s7", 0), ("sold", "trees-s7", 1), (None, "neural-s7", 0)]


def test_lightgbm_on_a_gpu_lane_says_that_it_trains_on_the_cpu() -> None:
    plan = plan_of("trees.engine=lightgbm", gpus=2)
    assert plan.reasons["trees"].startswith("on the CPU: lightgbm has no GPU build here; ")
    assert plan.resolved(load("trees.engine=lightgbm"), size_of()).trees.tree_method == "hist"
    assert "trees" not in plan_of("trees.engine=xgboost", gpus=2).reasons
    assert "trees" not in plan_of("trees.engine=lightgbm").reasons


def test_gpus_that_no_model_of_a_run_would_use_are_refused() -> None:
    with pytest.raises(ConfigError, match="no model of this run would use a GPU"):
        plan_of("trees.engine=lightgbm", 'models=["trees"]', "devices.gpus=[0]", gpus=1)
    plan_of("trees.engine=lightgbm", 'models=["trees"]', gpus=1)  # taken because they are there: said alone


def test_without_h2o_the_trees_are_those_of_the_next_library_and_the_plan_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = {"xgboost", "lightgbm"}
    monkeypatch.setattr(
        "sparkgpu.core.config.registry.engines.find_spec", lambda module: object() if module in here else None
    )
    said = "since Spark and H2O are not installed here; `pip install 'sparkgpu[h2o]'` brings H2O's XGBoost"
    for engine in ("xgboost", "lightgbm"):
        plan = plan_of()
        assert plan.trials[0].engine == engine
        assert plan.reasons["engine"].startswith(f"{engine}, {said}")
        assert not plan.needs_jvm and plan.prepared_by == "arrow"
        assert plan.resolved(load(), size_of()).config.trees.engine == engine  # as run.toml says
        here.remove(engine)
    assert plan_of().trials[0].engine == "h2o-xgboost"  # whose absence is then refused, with the command
    with pytest.raises(DeviceError) as caught:
        check_engines(load())
    assert str(caught.value) == (
        "model 'trees': its engine h2o-xgboost is not installed here. Run `pip install 'sparkgpu[h2o]'`."
    )
