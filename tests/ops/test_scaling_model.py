"""The model of a step on several devices: never better than ideal, and monotone where it must be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkgpu.ops.advise.scaling import MODELLED, Link, Step, fitted

LINK = Link(bytes_per_s=1e9, latency_s=1e-5, origin="given")
STEP = Step(fixed_s=1e-3, row_s=1e-5, batch=1024, weight_bytes=4_000_000, link=LINK)


@given(
    strategy=st.sampled_from(MODELLED),
    devices=st.integers(1, 2048),
    batch=st.integers(1, 100_000),
    weights=st.integers(1, 10**10),
    fixed_s=st.floats(0, 1),
    row_s=st.floats(1e-9, 1),
)
def test_no_strategy_is_more_than_as_many_times_as_fast_as_it_has_devices(
    strategy: str, devices: int, batch: int, weights: int, fixed_s: float, row_s: float
) -> None:
    step = Step(fixed_s=fixed_s, row_s=row_s, batch=batch, weight_bytes=weights, link=LINK)
    assert 0 < step.speed_up(strategy, devices) <= devices * (1 + 1e-9)


def test_a_ring_sends_nearly_twice_the_weights_and_dp_so_much_to_each_device() -> None:
    free = replace(STEP, weight_bytes=10**9, link=replace(LINK, latency_s=0.0))
    for strategy, expected_s in (("ddp", 1.5), ("fsdp", 2.25), ("dp", 6.0)):
        assert free.communication_s(strategy, 4) == pytest.approx(expected_s)


def test_a_larger_batch_and_a_faster_link_help_ddp_and_lanes_need_neither() -> None:
    slow = STEP.speed_up("ddp", 8)
    assert replace(STEP, batch=8192).speed_up("ddp", 8) > slow
    ideal = Link(bytes_per_s=1e30, latency_s=0.0, origin="given")
    assert replace(STEP, fixed_s=0.0, link=ideal).speed_up("ddp", 8) == pytest.approx(8.0)
    assert STEP.speed_up("lanes", 8) == 8.0
    shared = replace(STEP, shared_cores=True)
    assert shared.speed_up("lanes", 2) == 1.0 and shared.speed_up("ddp", 2) < 1.0


def test_the_cost_of_a_step_follows_from_two_batches_and_is_never_negative() -> None:
    assert fitted((1000, 0.011), (200, 0.003)) == (pytest.approx(1e-3), pytest.approx(1e-5))
    assert fitted((1000, 0.010), (200, 0.012)) == (pytest.approx(0.010), 0.0)
    fixed_s, row_s = fitted((1000, 0.010), (200, 0.0001))
    assert fixed_s == 0.0 and 1000 * row_s == pytest.approx(0.010)
    assert replace(STEP, batch=100).seconds() == pytest.approx(2e-3)
