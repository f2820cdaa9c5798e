"""A prediction follows from a small run by stated arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sparkgpu.core.config import toml
from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.host.gpus import Gpu
from sparkgpu.core.plan.make_plan import make_plan
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.rundir.advice import OptionRecord
from sparkgpu.ops.advise.options import Ways
from sparkgpu.ops.advise.predict import branch_ends, expected_steps, predict
from sparkgpu.ops.advise.sample import Sample
from sparkgpu.ops.advise.speed import MachineSpeed, Piece, shortened

GIB = 2**30
MACHINE = Machine(cores=1, memory_bytes=32 * GIB)


def work(steps: int, step_s: float, free_step_s: float, before_s: float = 0.0, after_s: float = 0.0) -> Piece:
    return Piece(
        before_s=before_s, steps=steps, step_s=step_s, free_step_s=free_step_s, after_s=after_s, predict_s=0.2
    )  # fmt: skip


def test_a_branch_is_faster_once_the_other_one_has_ended() -> None:
    ends = branch_ends(
        {"trees": [work(10, 1.0, 1.0)], "neural": [work(20, 1.0, 0.5)]}, {"trees": 2.0, "neural": 0.0}
    )
    assert ends["trees"] == pytest.approx(12.0)
    assert ends["neural"] == pytest.approx(12.0 + 8 * 0.5)
    assert branch_ends({"neural": [work(20, 1.0, 0.5, before_s=1.0, after_s=2.0)]}, {"neural": 3.0}) == {
        "neural": pytest.approx(3.0 + 1.0 + 10.0 + 2.0)
    }


def plan_of(lanes: int, **options: object) -> Plan:
    config = toml.load(options={"data.target": "y", "devices.cpu_lanes": lanes, **options})
    machine = Machine(cores=4, memory_bytes=32 * GIB)
    devices = tuple(Device(kind="cpu", name="cpu", title="CPU", visible="") for _ in range(lanes))
    return make_plan(config, machine, devices, tuple(range(lanes)))


def calibration(
    plan: Plan, whole_rows: int, sample_rows: int = 10_000, parameters: int = 40_000
) -> MachineSpeed:
    size = TableSize(task="binary", train_rows=int(0.7 * whole_rows), num_features=10, num_classes=2)
    pieces = {
        "trees": work(30, 0.01, 0.01, before_s=0.5, after_s=1.5),
        "neural": work(10, 0.4, 0.25, before_s=0.5, after_s=1.5),
    }
    sample = Sample(
        file=Path("s"), rows=sample_rows, whole_rows=whole_rows, size=size, num_words=2, num_flags=3,
    )  # fmt: skip
    resolved = plan.resolved(toml.load(options={"data.target": "y"}), size)
    return MachineSpeed(
        sample=sample, size=size, resolved=resolved, train_rows=int(0.7 * sample_rows),
        ready_s=6.0, jvm_s=1.0, pieces=pieces, end_s=0.5, wall_s=14.0, peak_rss_bytes=GIB,
        peak_device_bytes=None, parameters=parameters,
    )  # fmt: skip


def test_time_and_memory_grow_with_the_rows() -> None:
    plan = plan_of(1)
    found = [predict(calibration(plan, rows), plan) for rows in (200_000, 400_000, 800_000)]
    assert [one.wall_s for one in found] == sorted(one.wall_s for one in found)
    assert [one.peak_rss_bytes for one in found] == sorted(one.peak_rss_bytes for one in found)
    assert all(one.peak_rss_bytes > GIB for one in found)


def test_the_sample_itself_costs_what_it_cost() -> None:
    plan = plan_of(1)
    found = calibration(plan, 10_000)
    predicted = predict(found, plan)
    epochs = expected_steps(found.resolved.neural, found.size)
    least = 6.0 + 0.5 + 0.5 + epochs * 0.25 + 1.0 + 0.5
    assert least <= predicted.wall_s <= least + epochs * 0.15 + 1e-6
    assert predicted.peak_rss_bytes == GIB


def test_repeats_on_one_lane_follow_each_other_and_a_time_limit_is_used() -> None:
    one, two, limited = plan_of(1), plan_of(1, repeats=2), plan_of(1, time_limit="5m")
    assert predict(calibration(limited, 50_000), limited).wall_s == 300.0
    once = predict(calibration(one, 50_000), one)
    twice = predict(calibration(two, 50_000), two)
    assert twice.branches_s["neural"] - twice.ready_s > 1.7 * (once.branches_s["neural"] - once.ready_s)


def test_small_tables_are_expected_to_stop_early_and_large_ones_are_not() -> None:
    resolved = calibration(plan_of(1), 50_000).resolved
    network = resolved.neural.model_copy(update={"epochs": 100, "patience": 16})
    trees = resolved.trees.model_copy(update={"ntrees": 100, "early_stopping_rounds": 16})
    small = TableSize(task="binary", train_rows=50_000, num_features=10, num_classes=2)
    large, classes = replace(small, train_rows=100_000), replace(small, task="multiclass", num_classes=5)
    assert [expected_steps(network, size) for size in (small, large, classes)] == [40, 100, 100]
    assert [expected_steps(trees, size) for size in (small, large, classes)] == [20, 75, 20]
    assert expected_steps(network.model_copy(update={"patience": 0}), small) == 100


def test_the_small_run_trains_the_same_models_for_a_few_steps() -> None:
    config = toml.load(options={"also": "lightgbm", "repeats": 3})
    short = shortened(config, 30, 5, 1)
    assert (short.trees.ntrees, short.neural.epochs, short.repeats) == (30, 5, 1)
    assert short.section("lightgbm").ntrees == 30  # type: ignore[union-attr]
    assert not short.trees.try_smaller, "one training is measured"
    assert short.model_names == config.model_names


def ways(plan: Plan, *, machine: Machine = MACHINE, **changes: int) -> dict[str, OptionRecord]:
    found = calibration(plan, 50_000, **changes)
    devices = [
        Device(kind="cuda", name=f"cuda:{gpu.index}", title="", visible="", memory_bytes=gpu.memory_bytes)
        for gpu in machine.gpus
    ] or [Device(kind="cpu", name="cpu", title="CPU", visible="")]
    options = Ways(found, predict(found, plan), plan, machine, devices, price_per_hour=2.0).options()
    return {one.name: one for one in options}


def chosen(found: dict[str, OptionRecord]) -> Sequence[str]:
    return [name for name, one in found.items() if one.standing == "chosen"]


def test_one_device_trains_one_network_and_a_table_beyond_the_memory_needs_a_cluster() -> None:
    found = ways(plan_of(1))
    assert chosen(found) == ["single"]
    assert found["ddp"].standing == "not here" and found["cluster"].standing == "not here"
    assert found["single"].wall_s is not None and found["single"].price is not None
    found = ways(plan_of(1), machine=replace(MACHINE, memory_bytes=GIB))
    assert found["cluster"].standing == "possible" and "cluster.master" in found["cluster"].why


def test_the_chosen_strategy_is_that_of_the_plan_and_lanes_of_the_same_cores_bring_no_speed() -> None:
    assert chosen(ways(plan_of(2))) == ["lanes"]
    assert chosen(ways(plan_of(2, **{"neural.strategy": "ddp"}))) == ["ddp"]
    found = ways(plan_of(2))
    assert found["lanes"].efficiency == 0.5
    assert found["ddp"].efficiency is not None and found["ddp"].efficiency <= 0.5


def test_gpus_make_ddp_faster_and_a_network_that_does_not_fit_needs_fsdp() -> None:
    cards = tuple(Gpu(index=i, uuid=f"GPU-{i}", title="", memory_bytes=24 * GIB) for i in range(4))
    gpus = replace(MACHINE, gpus=cards)
    found = ways(plan_of(1), machine=gpus)
    assert found["ddp"].wall_s is not None and found["dp"].wall_s is not None
    assert found["ddp"].efficiency is not None and 0 < found["ddp"].efficiency <= 1
    assert "which one device holds easily" in found["fsdp"].why
    assert "do not fit one device" in ways(plan_of(1), machine=gpus, parameters=2_000_000_000)["fsdp"].why
