"""One network on two machines with two ranks each: the weights of one gang, and lost ranks replaced."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import Outcome, fit, lane_on, plant
from safetensors.torch import load_file

from sparkgpu.engines.launchers.heartbeat import TRAINING, Sign, read_sign
from sparkgpu.errors import DeviceError, TrialError
from sparkgpu.host.rank_command import LAUNCHER
from sparkgpu.host.reservations import reserved_ports
from sparkgpu.plan.plan import Plan
from sparkgpu.plan.trial_spec import TrialSpec
from sparkgpu.rundir.files import write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import TableSchema

pytestmark = pytest.mark.process

Table = tuple[RunPaths, TableSchema]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return plant(tmp_path_factory.mktemp("machines"), "binary", rows=3000)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets the launcher with a number of restarts; its port is held until the test ends."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with reserved_ports(1) as (port,):

        def launch_with(restarts: int) -> None:
            script = Path(__file__).with_name("two_machines.py")
            words = [sys.executable, str(script), str(port), "2", str(restarts)]
            monkeypatch.setenv(LAUNCHER, shlex.join(words))

        yield launch_with


def train(table: Table, name: str, *, nodes: int, ranks: int, **settings: Any) -> Outcome:
    """One trial with `ranks` CPU lanes on each of `nodes` machines."""
    paths, schema = table
    lanes = tuple(lane_on("cpu", threads=1).model_copy(update={"index": index}) for index in range(ranks))
    spec = TrialSpec.model_validate(
        {
            "name": name, "model": "neural", "engine": "torch", "seed": 7, "fold": None, "lane": 0,
            "gang": tuple(range(ranks)), "strategy": "ddp", "nodes": nodes,
        }
    )  # fmt: skip
    write_json(paths.plan, Plan(preset="fast", lanes=lanes, trials=(spec,), reasons={}))
    return fit(paths, schema, spec=spec, **{"epochs": 10, "dropout": 0.2, **settings})


def weights(outcome: Outcome) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(outcome.folder / "model.safetensors")
    return found


def kill_one(table: Table, name: str, rank: int) -> threading.Thread:
    """Kill a rank of the first attempt after all four have taken some steps."""

    def wait() -> None:
        folder = table[0].trial(name).gang / "attempt-0"
        deadline = time.monotonic() + 150
        while time.monotonic() < deadline:
            signs: list[Sign] = [sign for each in range(4) if (sign := read_sign(folder, each)) is not None]
            if len(signs) == 4 and all(sign.state == TRAINING and sign.beats > 20 for sign in signs):
                os.kill(signs[rank].process, signal.SIGKILL)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def one_gang(table: Table) -> Outcome:
    return train(table, "one-gang", nodes=1, ranks=4)


@pytest.mark.slow
def test_two_machines_with_two_ranks_train_the_weights_of_one_with_four(
    table: Table, launcher: Callable[[int], None], one_gang: Outcome
) -> None:
    launcher(0)
    found = train(table, "two-machines", nodes=2, ranks=2)
    for name, value in weights(one_gang).items():
        torch.testing.assert_close(weights(found)[name], value, atol=1e-5, rtol=0)
    assert found.record.device_proof["num_ranks"] == 4
    assert not table[0].trial("two-machines").gang.exists()


@pytest.mark.slow
def test_a_rank_killed_on_the_second_machine_is_named_and_training_ends_with_the_same_weights(
    table: Table, launcher: Callable[[int], None], one_gang: Outcome
) -> None:
    launcher(2)
    killer = kill_one(table, "one-killed", 3)
    found = train(table, "one-killed", nodes=2, ranks=2)
    killer.join()
    note = found.record.notes[-1]
    assert note.startswith("started again from the last checkpoint: rank 3 of 4 was killed (out of memory?)")
    for name, value in weights(one_gang).items():
        torch.testing.assert_close(weights(found)[name], value, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_a_rank_lost_for_good_on_several_machines_ends_the_trial_with_its_name(
    table: Table, launcher: Callable[[int], None]
) -> None:
    launcher(0)
    killer = kill_one(table, "all-lost", 1)
    with pytest.raises(TrialError) as failed:
        train(table, "all-lost", nodes=2, ranks=2, epochs=1000)
    killer.join()
    assert str(failed.value).startswith("all-lost: rank 1 of 4 was killed (out of memory?)")
    assert 'Given up after 1 attempt with neural.strategy = "ddp" on 4 ranks of 2 machines' in str(
        failed.value
    )


@pytest.mark.slow
def test_a_network_that_diverges_on_several_machines_is_not_tried_again(
    table: Table, launcher: Callable[[int], None]
) -> None:
    launcher(2)
    with pytest.raises(TrialError, match="diverged: its log_loss is nan after epoch 1"):
        train(table, "too-fast", nodes=2, ranks=2, learning_rate=1e30)


def test_a_launcher_that_fails_is_quoted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER, "bash -c 'echo no such machine; exit 3'")
    with pytest.raises(TrialError, match=r"no rank started .* bash ended with status 3, .*no such machine"):
        train(table, "not-launched", nodes=2, ranks=2)


def test_without_a_launcher_the_refusal_says_where_one_comes_from(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LAUNCHER, raising=False)
    with pytest.raises(DeviceError, match="SPARKGPU_LAUNCHER is not set"):
        train(table, "no-launcher", nodes=2, ranks=2)
