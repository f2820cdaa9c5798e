"""The model of a step on several devices: never better than ideal, and monotone where it must be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkgpu.advise.scaling import MODELLED, Link, Modelled, StepCost, communication_s, speed_up, step_s

LINK = Link(bytes_per_s=1e9, latency_s=1e-5, origin="given")
COST = StepCost(fixed_s=1e-3, row_s=1e-5)


def speed(strategy: Modelled, devices: int, link: Link = LINK, batch: int = 1024) -> float:
    return speed_up(strategy, COST, batch=batch, weight_bytes=4_000_000, devices=devices, link=link)


@given(
    strategy=st.sampled_from(MODELLED),
    devices=st.integers(1, 2048),
    batch=st.integers(1, 100_000),
    weights=st.integers(1, 10**10),
    fixed_s=st.floats(0, 1),
    row_s=st.floats(1e-9, 1),
)
def test_no_strategy_is_more_than_as_many_times_as_fast_as_it_has_devices(
    strategy: Modelled, devices: int, batch: int, weights: int, fixed_s: float, row_s: float
) -> None:
    found = speed_up(
        strategy, StepCost(fixed_s=fixed_s, row_s=row_s), batch=batch, weight_bytes=weights, devices=devices,
        link=LINK,
    )  # fmt: skip
    assert 0 < found <= devices * (1 + 1e-9)


@pytest.mark.parametrize("strategy", ["dp", "ddp", "fsdp"])
def test_communication_grows_with_the_devices_and_with_the_weights(strategy: Modelled) -> None:
    seconds = [communication_s(strategy, 4_000_000, count, LINK) for count in (1, 2, 4, 8, 64)]
    assert seconds == sorted(seconds) and seconds[0] == 0
    assert communication_s(strategy, 8_000_000, 4, LINK) > communication_s(strategy, 4_000_000, 4, LINK)


def test_a_ring_sends_nearly_twice_the_weights_and_dp_so_much_to_each_device() -> None:
    free = Link(bytes_per_s=1e9, latency_s=0.0, origin="given")
    assert communication_s("ddp", 10**9, 4, free) == pytest.approx(1.5)
    assert communication_s("fsdp", 10**9, 4, free) == pytest.approx(2.25)
    assert communication_s("dp", 10**9, 4, free) == pytest.approx(6.0)


def test_ddp_is_ideal_without_fixed_cost_and_with_an_infinite_link() -> None:
    ideal = Link(bytes_per_s=1e30, latency_s=0.0, origin="given")
    cost = StepCost(fixed_s=0.0, row_s=1e-5)
    found = speed_up("ddp", cost, batch=1024, weight_bytes=4_000_000, devices=8, link=ideal)
    assert found == pytest.approx(8.0)


def test_a_larger_batch_and_a_faster_link_help_ddp_and_lanes_need_neither() -> None:
    assert speed("ddp", 8, batch=8192) > speed("ddp", 8)
    assert speed("ddp", 8, Link(bytes_per_s=1e11, latency_s=1e-6, origin="given")) > speed("ddp", 8)
    assert speed("lanes", 8) == 8.0


def test_lanes_of_the_same_cores_gain_nothing() -> None:
    shared = {"batch": 1024, "weight_bytes": 4, "devices": 2, "link": LINK, "shared_cores": True}
    assert speed_up("lanes", COST, **shared) == 1.0  # type: ignore[arg-type]
    assert speed_up("ddp", COST, **shared) < 1.0  # type: ignore[arg-type]


def test_the_cost_of_a_step_follows_from_two_batches_and_is_never_negative() -> None:
    cost = StepCost.of((1000, 0.011), (200, 0.003))
    assert (cost.fixed_s, cost.row_s) == (pytest.approx(1e-3), pytest.approx(1e-5))
    noisy = StepCost.of((1000, 0.010), (200, 0.012))
    assert noisy.row_s == 0.0 and noisy.fixed_s == pytest.approx(0.010)
    steep = StepCost.of((1000, 0.010), (200, 0.0001))
    assert steep.fixed_s == 0.0 and steep.step_s(1000) == pytest.approx(0.010)
    assert step_s("single", COST, batch=100, weight_bytes=4, devices=1, link=LINK) == pytest.approx(2e-3)
