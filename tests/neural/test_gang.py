"""Lost ranks are named and replaced, and the training continues as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from gangs import SETTINGS, Table, gang, weights, when_training
from planted import Outcome, fit, plant

from sparkgpu.core.errors import TrialError
from sparkgpu.neural.launchers.heartbeat import Heartbeat, Sign, read_sign
from sparkgpu.neural.launchers.local import _Watcher

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return plant(tmp_path_factory.mktemp("gang"), "binary")


def folder_of(table: Table, name: str) -> Path:
    """Where the ranks of a gang on this machine write their signs."""
    return table[0].root / f"gang-{name}"


@pytest.fixture(scope="module")
def undisturbed(table: Table) -> Outcome:
    return gang(table, "undisturbed")


def test_a_gang_predicts_what_one_device_does(table: Table, undisturbed: Outcome) -> None:
    alone = fit(*table, name="alone", **SETTINGS)
    np.testing.assert_allclose(undisturbed.test, alone.test, atol=1e-5)
    assert undisturbed.record.device_proof["num_ranks"] == 2
    assert [rank["rank"] for rank in undisturbed.record.device_proof["ranks"]] == [0, 1]


def test_a_gang_that_streams_learns_from_all_rows_what_one_device_does(
    table: Table, undisturbed: Outcome
) -> None:
    found = gang(table, "streamed", data="stream")
    assert found.record.train_rows == undisturbed.record.train_rows
    assert abs(found.accuracy() - undisturbed.accuracy()) < 0.02
    assert not np.allclose(found.test, undisturbed.test, atol=1e-5)  # its batches are others


def test_a_rank_that_is_killed_or_hangs_is_named_and_training_ends_with_the_same_weights_bit_for_bit(
    table: Table, undisturbed: Outcome
) -> None:
    folder = folder_of(table, "lost twice")
    killer = when_training(folder, lambda signs: os.kill(signs[1].process, signal.SIGKILL))
    stopper = when_training(folder, lambda signs: os.kill(signs[0].process, signal.SIGSTOP), attempt=1)
    found = gang(table, "lost twice", rank_timeout_s=5.0)
    killer.join()
    stopper.join()
    killed, hung = found.record.notes[-2:]
    again = "started again from the last checkpoint: rank"
    assert killed.startswith(f"{again} 1 of 2 was killed (out of memory?)")
    assert hung.startswith(f"{again} 0 of 2 hung: nothing done for ")
    assert "does not answer (stopped?)" in hung
    assert all(torch.equal(value, weights(undisturbed)[name]) for name, value in weights(found).items())
    assert not (found.folder / "checkpoints").exists()


@pytest.mark.slow
def test_a_rank_lost_for_good_ends_the_trial_with_its_name_and_no_process_left(
    table: Table,
) -> None:
    processes: list[int] = []

    def kill(signs: list[Sign]) -> None:
        processes.extend(sign.process for sign in signs)
        os.kill(signs[0].process, signal.SIGKILL)

    killer = when_training(folder_of(table, "lost"), kill)
    with pytest.raises(TrialError) as failed:
        gang(table, "lost", max_restarts=0)
    killer.join()
    assert str(failed.value).startswith("lost: rank 0 of 2 was killed (out of memory?)")
    assert 'Given up after 1 attempt with neural.strategy = "ddp" on 2 ranks' in str(failed.value)
    assert not any(psutil.pid_exists(process) for process in processes)


def test_a_rank_gets_longer_before_its_first_step_and_at_slow_work(tmp_path: Path) -> None:
    watcher, heartbeat = _Watcher(tmp_path, tmp_path, 1, 40.0), Heartbeat(tmp_path, 0)

    def patience_s() -> float:
        sign = read_sign(tmp_path, 0)
        assert sign is not None
        return watcher._patience_s(sign)

    assert patience_s() == 400.0
    heartbeat.step()
    assert patience_s() == 40.0
    with heartbeat.slow_work():
        assert patience_s() == 400.0
    assert patience_s() == 40.0


_APART = """
import os, sys, time
from types import SimpleNamespace
import torch, torch.distributed as dist
from sparkgpu.neural import ranks
ranks._WAIT_LONGER_S, rank = 0.0, int(sys.argv[1])
config, store = SimpleNamespace(rank_timeout_s=0.5), dist.FileStore(sys.argv[2] + "/store", 2)
ranks.join(config, torch.device("cpu"), store, rank, 2)
time.sleep(2.0 * rank)  # one rank reads for longer than a step may take
total = torch.ones(())
dist.all_reduce(total)
print(int(total), flush=True)
os._exit(0)
"""


def test_a_rank_waits_for_another_one_as_long_as_slow_work_may_take(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _APART, str(rank), str(tmp_path)], stdout=subprocess.PIPE, text=True,
            env=environ,
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [rank.communicate(timeout=60)[0] for rank in ranks] == ["2\n", "2\n"]


@pytest.mark.slow
def test_a_step_that_compiles_anew_is_not_taken_for_a_hang(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # nothing is compiled yet
    found = gang(table, "compiled", compile=True, rank_timeout_s=15.0, epochs=2, checkpoint_minutes=10.0)
    assert found.record.notes == ()


@pytest.mark.slow
def test_a_network_that_diverges_is_not_tried_again(table: Table) -> None:
    with pytest.raises(TrialError, match="diverged: its log_loss is nan after epoch 1"):
        gang(table, "diverging", learning_rate=1e30)
    assert not (folder_of(table, "diverging") / "attempt-1").exists()


def test_ranks_die_with_their_parent(tmp_path: Path) -> None:
    plant(tmp_path, "binary")
    code = (
        "import sys; sys.path[:0] = [sys.argv[2]]; from pathlib import Path; from gangs import gang;"
        "from sparkgpu.core.rundir.paths import RunPaths; paths = RunPaths(root=Path(sys.argv[1]));"
        "from sparkgpu.core.table.schema import read_schema;"
        "gang((paths, read_schema(paths)), 'orphans', epochs=100_000)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)])
    found: list[Sign] = []
    when_training(tmp_path / "gang-orphans", found.extend).join()
    assert len(found) == 2
    parent.kill()
    parent.wait()
    gone = psutil.wait_procs([psutil.Process(s.process) for s in found if psutil.pid_exists(s.process)], 5)
    assert not gone[1]


CHANGES = [
    ("single", "single"),
    *(
        pytest.param(*change, marks=pytest.mark.slow)
        for change in (
            ("ddp", "fsdp"), ("single", "ddp"), ("ddp", "single"), ("tp", "single"), ("fsdp", "pp"),
            ("pp", "tp"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then"), CHANGES)
def test_a_killed_training_goes_on_from_its_checkpoint_with_any_strategy(
    table: Table, uninterrupted: Outcome, first: str, then: str
) -> None:
    name = f"from-{first}-to-{then}"
    checkpoints = table[0].trial(name).checkpoints
    code = (
        "import sys; sys.path[:0] = [sys.argv[1]]; from pathlib import Path; from test_gang import resumable;"
        "from sparkgpu.core.rundir.paths import RunPaths; paths = RunPaths(root=Path(sys.argv[2]));"
        "from sparkgpu.core.table.schema import read_schema;"
        "resumable((paths, read_schema(paths)), *sys.argv[3:])"
    )
    arguments = [str(Path(__file__).parent), str(table[0].root), name, first]
    killed = subprocess.Popen([sys.executable, "-c", code, *arguments])
    while killed.poll() is None and not list(checkpoints.glob("epoch-0000[3-9]-*")):
        time.sleep(0.002)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    shutil.rmtree(folder_of(table, name), ignore_errors=True)
    found = resumable(table, name, then)
    assert found.record.notes[0].startswith("resumed from a checkpoint after epoch ")
    assert len(found.curve) == len(uninterrupted.curve)
    for key, value in weights(uninterrupted).items():
        if first == then:
            assert torch.equal(weights(found)[key], value)
        else:
            torch.testing.assert_close(weights(found)[key], value, atol=1e-5, rtol=0)


def resumable(table: Table, name: str, strategy: str) -> Outcome:
    settings = {**SETTINGS, "hidden": (16, 8), "learning_rate": 1e-3, "patience": 3, "epochs": 12}
    if strategy == "single":
        return fit(*table, name=name, **settings)
    return gang(table, name, strategy, **settings)


@pytest.fixture(scope="module")
def uninterrupted(table: Table) -> Outcome:
    return resumable(table, "uninterrupted", "single")


def test_a_checkpoint_that_was_not_finished_is_none(table: Table) -> None:
    half = table[0].trial("half").checkpoints / ".epoch-00002-step-0000000"
    half.mkdir(parents=True)
    (half / "progress.json").write_text("{")
    found = resumable(table, "half", "single")
    assert found.record.notes == ()
