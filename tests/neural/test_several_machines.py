"""One network on two machines with two ranks each: the weights of one gang, and lost ranks replaced."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gangs import Table, gang, weights, when_training
from planted import Outcome, plant

from sparkgpu.core.errors import DeviceError, TrialError
from sparkgpu.core.host.rank_command import LAUNCHER
from sparkgpu.core.host.reservations import reserved_ports
from sparkgpu.neural.launchers.heartbeat import Sign

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return plant(tmp_path_factory.mktemp("machines"), "binary", rows=3000)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A launcher in the environment; its port is held until the test ends."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with reserved_ports(1) as (port,):
        script = Path(__file__).with_name("two_machines.py")
        monkeypatch.setenv(LAUNCHER, shlex.join([sys.executable, str(script), str(port), "2"]))
        yield


def on_two(table: Table, name: str, **settings: Any) -> Outcome:
    """One trial on two machines with two ranks each."""
    return gang(table, name, nodes=2, **{"epochs": 10, "checkpoint_minutes": 10.0, **settings})


def kill_one(table: Table, name: str, rank: int) -> threading.Thread:
    """Kill a rank of the first attempt after all four have taken some steps."""
    folder = table[0].trial(name).gang
    return when_training(folder, lambda signs: os.kill(signs[rank].process, signal.SIGKILL), ranks=4)


@pytest.fixture(scope="module")
def one_gang(table: Table) -> Outcome:
    return gang(table, "one-gang", ranks=4, epochs=10, checkpoint_minutes=10.0)


@pytest.mark.slow
def test_two_machines_with_two_ranks_train_the_weights_of_one_with_four(
    table: Table, launcher: None, one_gang: Outcome
) -> None:
    found = on_two(table, "two-machines")
    for name, value in weights(one_gang).items():
        torch.testing.assert_close(weights(found)[name], value, atol=1e-5, rtol=0)
    assert found.record.device_proof["num_ranks"] == 4
    assert not table[0].trial("two-machines").gang.exists()


@pytest.mark.slow
def test_a_rank_killed_on_the_second_machine_is_named_and_training_ends_with_the_same_weights(
    table: Table, launcher: None, one_gang: Outcome
) -> None:
    killer = kill_one(table, "one-killed", 3)
    found = on_two(table, "one-killed")
    killer.join()
    note = found.record.notes[-1]
    assert note.startswith("started again from the last checkpoint: rank 3 of 4 was killed (out of memory?)")
    for name, value in weights(one_gang).items():
        torch.testing.assert_close(weights(found)[name], value, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_a_rank_that_stops_on_the_second_machine_is_found_long_before_torchs_own_timeout(
    table: Table, launcher: None
) -> None:
    began: list[float] = []

    def stop(signs: list[Sign]) -> None:
        time.sleep(2.0)  # until each has said that it trains
        os.kill(signs[3].process, signal.SIGSTOP)
        began.append(time.monotonic())

    stopper = when_training(table[0].trial("stopped").gang, stop, ranks=4)
    with pytest.raises(TrialError, match=r"stopped: rank 3 of 4 was killed"):
        on_two(table, "stopped", rank_timeout_s=20.0, max_restarts=0, epochs=10_000)
    stopper.join()
    assert time.monotonic() - began[0] < 100  # torch's is 215 s


def test_a_launcher_that_fails_is_quoted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER, "bash -c 'echo no such machine; exit 3'")
    with pytest.raises(TrialError, match=r"no rank started .* bash ended with status 3, .*no such machine"):
        on_two(table, "not-launched")


def test_without_a_launcher_the_refusal_says_where_one_comes_from(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LAUNCHER, raising=False)
    with pytest.raises(DeviceError, match="SPARKGPU_LAUNCHER is not set"):
        on_two(table, "no-launcher")
