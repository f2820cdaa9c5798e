"""Strategies are chosen with a reason, and refused before the start if they cannot work."""

from __future__ import annotations

import pytest

from sparkgpu.config.models import NeuralConfig
from sparkgpu.errors import ConfigError
from sparkgpu.plan.strategy import check_strategy, choose_strategy, ways

HIDDEN = (256, 128, 64, 32)


def net(**settings: object) -> NeuralConfig:
    return NeuralConfig.model_validate({"architecture": "mlp", "hidden": HIDDEN, **settings})


def test_one_repeat_for_each_device_trains_each_network_on_one() -> None:
    for devices in (1, 4):
        assert choose_strategy(net(), HIDDEN, num_devices=devices, trials=devices, memory_bytes=None) == (
            "single", "single: each network trains on one device, one repeat for each lane",
        )  # fmt: skip


def test_fewer_repeats_than_devices_share_them() -> None:
    assert choose_strategy(net(), HIDDEN, num_devices=4, trials=1, memory_bytes=None) == (
        "ddp", "ddp: 1 repeat over 4 devices, each with a part of a batch",
    )  # fmt: skip


def test_weights_that_do_not_fit_one_device_are_cut() -> None:
    huge = net(hidden=(32_768, 32_768, 32_768))
    found, reason = choose_strategy(huge, (32_768,) * 3, num_devices=2, trials=2, memory_bytes=24 * 2**30)
    assert found == "fsdp" and reason == (
        "fsdp: weights, gradients and optimizer state take 32.0 GiB, more than a device can spare, so they "
        "are cut over all"
    )
    assert (
        choose_strategy(huge, (32_768,) * 3, num_devices=2, trials=2, memory_bytes=141 * 2**30)[0] == "single"
    )


def test_a_strategy_that_is_asked_for_is_taken() -> None:
    assert choose_strategy(net(strategy="tp"), HIDDEN, num_devices=2, trials=2, memory_bytes=None)[0] == "tp"


def test_hybrids_have_copies_of_the_network_each_cut() -> None:
    assert [ways(net(), name, 8) for name in ("ddp", "tp", "pp", "dp_tp")] == [(8, 1), (1, 8), (1, 8), (4, 2)]
    assert ways(net(model_parallel=4), "dp_pp", 8) == (2, 4)


@pytest.mark.parametrize(
    ("settings", "strategy", "devices", "message"),
    [
        (
            {}, "ddp", 1,
            'neural.strategy = "ddp" spreads one network over several devices, but this run has one; name '
            'more with --gpus or --cpu-lanes, or choose "single".',
        ),
        (
            {"hidden": (250, 128)}, "tp", 4,
            'neural.strategy = "tp" cuts layers over 4 devices, but a width of 250 in neural.hidden = [250, '
            "128] does not divide by 4; choose 248 or 252.",
        ),
        (
            {}, "pp", 6,
            'neural.strategy = "pp" makes 6 stages, but neural.hidden = [256, 128, 64, 32] has 4 blocks; '
            "give it at least 6, or use fewer devices.",
        ),
        (
            {}, "dp_pp", 3,
            'neural.strategy = "dp_pp" needs a multiple of neural.model_parallel = 2 (2 or more) devices, '
            "and at least twice as many; this run has 3.",
        ),
        (
            {"model_parallel": 2}, "tp", 4,
            'neural.strategy = "tp" cuts the network over all 4 devices, but neural.model_parallel = 2; '
            'leave it out, or choose "dp_tp".',
        ),
        (
            {"precision": "float16"}, "pp", 2,
            'neural.strategy = "pp" does not scale losses as float16 needs; choose precision "bfloat16" or '
            '"float32".',
        ),
        (
            {"compile": True}, "fsdp", 2,
            'neural.strategy = "fsdp" and neural.compile exclude each other; compile with "single" or "ddp".',
        ),
        (
            {"activation_checkpointing": True}, "pp", 2,
            'neural.strategy = "pp" and neural.activation_checkpointing exclude each other: a stage computes '
            "another micro-batch in between. Leave one out; a smaller neural.micro_batch_size saves memory "
            "as well.",
        ),
    ],
)  # fmt: skip
def test_what_a_strategy_cannot_split_is_refused_up_front(
    settings: dict[str, object], strategy: str, devices: int, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_strategy(net(**settings), settings.get("hidden", HIDDEN), strategy, devices)  # type: ignore[arg-type]
    assert str(refused.value) == message


@pytest.mark.parametrize("strategy", ["dp", "ddp", "fsdp", "tp", "pp", "dp_tp", "dp_pp"])
def test_what_can_be_split_passes(strategy: str) -> None:
    check_strategy(net(), HIDDEN, strategy, 4)
