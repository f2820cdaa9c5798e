"""A step that does not fit the memory is cut into micro-batches; the batch, and what is learned, stay."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from gangs import gang
from planted import fit, plant
from torch import Tensor

from sparkgpu.core.errors import TrialError
from sparkgpu.neural.nets.network import TabularNet
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training import memory, optimizer, train

FAILURE = "CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture
def most_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A device on which training on more rows at once than this fails as torch fails."""
    limit = [10**9]
    forward = TabularNet.forward

    def limited(net: TabularNet, *x: Tensor) -> Tensor:
        if net.training and len(x[0]) > limit[0]:
            raise torch.OutOfMemoryError(FAILURE)
        return forward(net, *x)

    monkeypatch.setattr(TabularNet, "forward", limited)
    return limit


def test_micro_batches_are_halved_until_they_fit_and_training_goes_on(
    tmp_path: Path, most_rows: list[int]
) -> None:
    paths, schema = plant(tmp_path, "binary")
    whole = fit(paths, schema, dropout=0.2, epochs=3)
    most_rows[0] = 20
    found = fit(paths, schema, dropout=0.2, epochs=3, name="small")
    torch.testing.assert_close(torch.from_numpy(found.test), torch.from_numpy(whole.test), atol=1e-5, rtol=0)
    assert found.record.notes == (
        "out of memory in epoch 1, step 1: micro-batches of 32 rows from there on; the batch stays 64",
        "out of memory in epoch 1, step 1: micro-batches of 16 rows from there on; the batch stays 64",
    )


def test_what_others_took_for_a_short_while_makes_no_micro_batch_smaller(
    tmp_path: Path, most_rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    def given_back(*_: Any) -> bool:
        waits.append(most_rows[0])
        most_rows[0] = 10**9
        return True

    paths, schema = plant(tmp_path, "binary")
    whole = fit(paths, schema, dropout=0.2, epochs=3)
    monkeypatch.setattr(train, "wait_for_room", given_back)
    most_rows[0] = 20
    found = fit(paths, schema, dropout=0.2, epochs=3, name="short")
    assert waits == [20] and found.record.notes == ()
    assert np.array_equal(found.test, whole.test)
    monkeypatch.setattr(train, "wait_for_room", lambda *_: True)
    most_rows[0] = 50
    found = fit(paths, schema, dropout=0.2, epochs=3, name="for-good")
    assert found.record.notes == (
        "out of memory in epoch 1, step 1: micro-batches of 32 rows from there on; the batch stays 64",
    )


def test_it_is_waited_until_others_give_memory_back_or_a_short_while_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = [1, 1, 1, 5, 9]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free.pop(0) if len(free) > 1 else 1, 10))
    monkeypatch.setattr(memory, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(memory, "_SHORT_S", 0.05)
    beats: list[int] = []
    assert not memory.wait_for_room(torch.device("cpu"), lambda: beats.append(1))
    assert memory.wait_for_room(torch.device("cuda:0"), lambda: beats.append(1))
    assert (len(beats), free) == (2, [9])
    free[:] = [1]
    assert memory.wait_for_room(torch.device("cuda:0"), lambda: beats.append(1)) and len(beats) > 10


def test_a_network_of_which_no_row_fits_is_refused_with_a_way_out(
    tmp_path: Path, most_rows: list[int]
) -> None:
    most_rows[0] = 0
    with pytest.raises(TrialError) as refused:
        fit(*plant(tmp_path, "binary", rows=100))
    assert str(refused.value) == (
        "neural-s7: the network does not fit the device's memory, even with one row at a time: lower "
        'neural.hidden, or spread it with neural.strategy = "fsdp".'
    )


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(FAILURE),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_each_way_of_running_out_of_memory_is_recognised(error: RuntimeError) -> None:
    assert memory.is_out_of_memory(error)
    assert not memory.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_validation_and_prediction_go_on_in_smaller_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, schema = plant(tmp_path, "binary")
    whole = fit(paths, schema, epochs=3)
    forward, seen = TabularNet.forward, []

    def limited(net: TabularNet, *x: Tensor) -> Tensor:
        if not net.training:
            seen.append(len(x[0]))
            if len(x[0]) > 100:
                raise torch.OutOfMemoryError(FAILURE)
        return forward(net, *x)

    monkeypatch.setattr(TabularNet, "forward", limited)
    found = fit(paths, schema, epochs=3, name="small")
    np.testing.assert_allclose(found.test, whole.test, atol=1e-6)
    assert found.column("valid") == pytest.approx(whole.column("valid"), rel=1e-6)
    assert found.record.notes == (
        "out of memory in the validation of epoch 1: 150 rows at once from there on",
        "out of memory in the validation of epoch 1: 75 rows at once from there on",
    )
    assert seen[:3] == [300, 150, 75] and set(seen[2:14]) == {75}


@pytest.mark.parametrize(("module", "fails"), [(train, "make_optimizer"), (optimizer, "orthogonal")])
def test_moments_or_a_step_that_do_not_fit_end_the_trial_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, fails: str
) -> None:
    def limited(*given: Any, **named: Any) -> Any:
        raise torch.OutOfMemoryError(FAILURE)

    monkeypatch.setattr(module, fails, limited)
    with pytest.raises(TrialError, match="neural-s7: the network and its optimizer do not fit the device's "):
        fit(
            *plant(tmp_path, "binary", rows=100), architecture="tabm", hidden=(16, 16), members=2,
            num_bins=4, embedding_dim=2, muon_learning_rate=0.02,
        )  # fmt: skip


# In each rank: training or validating on more rows at once than this fails.
LIMITED_RANKS = """
import os
import torch
forward = TabularNet.forward
def limited(net, *x):
    most = int(os.environ["MOST_TRAINED" if net.training else "MOST_VALIDATED"])
    if len(x[0]) > most and os.environ.get("RANK") == "1":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return forward(net, *x)
TabularNet.forward = limited
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("strategy", "trained", "validated"),
    [
        pytest.param("ddp", 20, 100, marks=pytest.mark.slow),
        pytest.param("fsdp", 20, 10_000, marks=pytest.mark.slow),
        pytest.param("fsdp", 10_000, 100, marks=pytest.mark.slow),
    ],
)
def test_a_gang_of_which_one_rank_runs_out_of_memory_starts_again_with_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, trained: int, validated: int
) -> None:
    table = plant(tmp_path / "run", "binary")
    alone = fit(*table, name="alone", epochs=3)
    (tmp_path / "sitecustomize.py").write_text(LIMITED_RANKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("MOST_TRAINED", str(trained))
    monkeypatch.setenv("MOST_VALIDATED", str(validated))
    found = gang(table, "limited", strategy, epochs=3, dropout=0.0)
    np.testing.assert_allclose(found.test, alone.test, atol=1e-5)
    notes = "\n".join(found.record.notes)
    if trained < 32:  # of 64 rows each of two ranks has 32
        assert "micro-batches of 16 rows" in notes and "started again from the last checkpoint" in notes
    if strategy == "ddp":  # no rank waits for another while it validates, so rank 1 goes on alone
        assert found.record.device_proof["num_ranks"] == 2
    elif validated < 10_000:
        assert "out of memory in the validation of epoch 1: micro-batches of " in notes


@pytest.mark.gpu
def test_a_real_lack_of_memory_is_survived(tmp_path: Path) -> None:
    """The network fits what is left of the device, a step on the whole batch does not, on half of it it may.

    Three layers of 512 have 0.53 million weights; these, their gradients and Adam's two moments take 16
    bytes each: 8 MiB. The 60,000 training rows are one batch; what one layer gives for them takes
    60,000 x 512 x 4 bytes = 117 MiB. A forward pass keeps that of each layer's ReLU for the gradient and
    holds its linear part beside it for a moment: with two layers kept and the third's linear part there are
    351 MiB, more than the 320 that are left. Of 30,000 rows a layer gives 59 MiB; the backward pass holds
    three kept ones and two gradients, 293 MiB, and should that be too much beside the weights and the
    table, 15,000 rows take half of it. The 20,000 rows to validate take 2 x 39 MiB.
    """
    device = torch.device("cuda:0")
    one = torch.ones((64, 64), device=device)
    torch.mm(one, one)  # what cuBLAS takes for itself, up to 32 MiB, is gone before the rest is counted
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    filler = torch.empty(free - 320 * 2**20, dtype=torch.uint8, device=device)
    settings = {"hidden": (512, 512, 512), "batch_size": 65_536, "epochs": 12, "learning_rate": 2e-3}
    found = fit(*plant(tmp_path, "binary", rows=100_000), "cuda:0", precision="float32", **settings)
    del filler
    assert found.record.notes[0] == (
        "out of memory in epoch 1, step 1: micro-batches of 30000 rows from there on, the batch stays 65536"
    )
    assert found.accuracy() > 0.9  # on a CPU it comes to 0.95


def test_a_network_that_does_not_even_reach_its_device_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(strategy: Strategy, net: TabularNet) -> torch.nn.Module:
        raise torch.OutOfMemoryError(FAILURE)

    monkeypatch.setattr(Strategy, "_placed", full)
    with pytest.raises(TrialError, match="neural-s7: the network and its optimizer do not fit the device's"):
        fit(*plant(tmp_path, "binary"), epochs=1)


def test_the_time_of_a_validation_begins_after_the_steps_that_a_gpu_has_not_taken_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []
    for name in ("sum_over_parts", "mean_loss"):  # the first one waits for the device
        own = getattr(Strategy, name)
        monkeypatch.setattr(
            Strategy, name, lambda *a, name=name, own=own, **k: order.append(name) or own(*a, **k)
        )
    fit(*plant(tmp_path, "binary"), epochs=2)
    assert order == ["sum_over_parts", "mean_loss"] * 2
