"""Strategies are chosen with a reason, and refused before the start if they cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import NeuralConfig
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.plan.devices import check_strategy, choose_strategy, ways

HIDDEN = (256, 128, 64, 32)
HUGE = (32_768, 32_768, 32_768)


def net(**settings: Any) -> NeuralConfig:
    return NeuralConfig.model_validate({"architecture": "mlp", "hidden": HIDDEN, **settings})


@pytest.mark.parametrize(
    ("asked", "devices", "trials", "gib", "strategy", "reason"),
    [
        ({}, 4, 4, None, "single", "each network trains on one device, one repeat for each lane"),
        ({}, 4, 1, None, "ddp", "1 repeat over 4 devices, each with a part of a batch"),
        ({"strategy": "tp"}, 2, 2, None, "tp", None),
        ({"hidden": HUGE}, 2, 2, 24, "fsdp", "weights, gradients and optimizer state take 32.0 GiB"),
        ({"hidden": HUGE}, 2, 2, 141, "single", "each network trains on one device"),
    ],
)
def test_a_strategy_is_the_one_asked_for_or_follows_repeats_devices_and_memory(
    asked: dict[str, Any], devices: int, trials: int, gib: int | None, strategy: str, reason: str | None
) -> None:
    reasons: dict[str, str] = {}
    found = choose_strategy(
        RunConfig(neural=net(**asked)), "fast", reasons, device="cuda:0", num_devices=devices, trials=trials,
        memory_bytes=None if gib is None else gib * 2**30,
    )  # fmt: skip
    assert found == strategy
    assert reasons.get("strategy", "").startswith(f"{strategy}: {reason}" if reason else "")


def test_hybrids_have_copies_of_the_network_each_cut() -> None:
    assert [ways(net(), name, 8) for name in ("ddp", "tp", "pp", "dp_tp")] == [(8, 1), (1, 8), (1, 8), (4, 2)]
    assert ways(net(model_parallel=4), "dp_pp", 8) == (2, 4)


@pytest.mark.parametrize(
    ("settings", "strategy", "devices", "found", "advice"),
    [
        ({}, "ddp", 1, "spreads one network over several devices", 'or choose "single"'),
        ({"hidden": (250, 128)}, "tp", 4, "cuts layers over 4 devices, but a width of 250 ",
         "choose 248 or 252"),
        ({}, "pp", 6, "makes 6 stages, but neural.hidden = [256, 128, 64, 32] has 4", "give it at least 6"),
        ({}, "dp_pp", 3, "needs a multiple of neural.model_parallel = 2", "this run has 3"),
        ({"model_parallel": 2}, "tp", 4, "cuts the network over all 4 devices, but neural.model_parallel = 2",
         'choose "dp_tp"'),
        ({"precision": "float16"}, "pp", 2, "does not scale losses as float16 needs", 'or "float32"'),
        ({"compile": True}, "fsdp", 2, "and neural.compile exclude each other", 'with "single" or "ddp"'),
        ({"activation_checkpointing": True}, "pp", 2, "and neural.activation_checkpointing exclude",
         "a smaller neural.micro_batch_size"),
        ({"architecture": "modernnca", "hidden": (64, 64, 64, 64)}, "pp", 2,
         'cannot cut neural.architecture = "modernnca"', 'choose "single" or "ddp"'),
    ],
)  # fmt: skip
def test_what_a_strategy_cannot_split_is_refused_up_front(
    settings: dict[str, Any], strategy: str, devices: int, found: str, advice: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_strategy(net(**settings), strategy, devices)
    assert str(refused.value).startswith(f'neural.strategy = "{strategy}" {found}')
    assert advice in str(refused.value)


@pytest.mark.parametrize("strategy", ["dp", "ddp", "fsdp", "tp", "pp", "dp_tp", "dp_pp"])
def test_what_can_be_split_passes(strategy: str) -> None:
    check_strategy(net(), strategy, 4)
