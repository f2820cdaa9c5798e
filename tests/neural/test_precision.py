"""The number format of a network's training: which one "auto" is on a processor, and what computes in it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from planted import alone, fit, made_trial, parameters, plant
from ranks_equivalence import spread, train
from torch import Tensor

from sparkgpu.core.config.model_keys import NeuralConfig
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.table.rows import read_rows
from sparkgpu.neural.engine import Torch
from sparkgpu.neural.model import load_model
from sparkgpu.neural.nets.network import TabularNet
from sparkgpu.neural.nets.tabm import FirstBlock, MembersOutput
from sparkgpu.neural.training import precision as of_precision
from sparkgpu.neural.training.checkpoint import Checkpoints, TrainingState
from sparkgpu.neural.training.precision import Precision, choose_precision
from sparkgpu.trials.engine import Platform

CPU = torch.device("cpu")
PLAIN, REDUCED = (Precision(device_type="cpu", dtype=dtype) for dtype in (None, torch.bfloat16))


@pytest.mark.parametrize(
    ("has_amx", "architecture", "asked", "dtype"),
    [
        (True, "tabm", "auto", torch.bfloat16), (False, "tabm", "auto", None), (True, "mlp", "auto", None),
        (True, "tabm", "float32", None), (False, "mlp", "bfloat16", torch.bfloat16),
    ],
)  # fmt: skip
def test_on_a_cpu_with_amx_a_network_that_gains_by_it_trains_in_bfloat16_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, has_amx: bool, architecture: str, asked: str, dtype: torch.dtype | None
) -> None:
    monkeypatch.setattr(of_precision, "has_amx", lambda: has_amx)
    config = NeuralConfig.model_validate({"precision": asked, "architecture": architecture})
    assert choose_precision(config, CPU, "CPU").dtype is dtype


def test_on_a_card_without_bfloat16_only_strategies_that_scale_losses_get_float16(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    for strategy in ("single", "ddp", "fsdp", "tp", "pp"):
        found = choose_precision(NeuralConfig(), torch.device("cuda:0"), "Tesla T4", strategy)
        assert found.dtype is (torch.float16 if strategy in ("single", "ddp") else None), strategy


def test_what_a_cpu_computes_in_software_only_is_refused() -> None:
    for precision in ("float16", "tf32"):
        with pytest.raises(DeviceError, match=rf'precision = "{precision}": a CPU .* set it to "float32"'):
            choose_precision(NeuralConfig(precision=precision), CPU, "AMD EPYC")


def test_only_large_matrices_are_multiplied_in_bfloat16_and_only_within_a_step() -> None:
    before = torch.get_float32_matmul_precision()
    small, large = torch.empty(128, 512), torch.empty(160, 256)
    with REDUCED.in_steps([small, large]):
        assert torch.get_float32_matmul_precision() == "medium"
    with pytest.raises(ZeroDivisionError), REDUCED.in_steps([large]):
        1 / 0  # noqa: B018
    for precision, matrices in ((REDUCED, [small]), (REDUCED, []), (PLAIN, [large])):
        with precision.in_steps(matrices):
            assert torch.get_float32_matmul_precision() == before
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("dtype", "tf32", "reduces"), [(torch.bfloat16, False, True), (None, True, True), (None, False, False)]
)
def test_a_gpu_multiplies_muons_matrices_in_tf32_only_where_it_trains_in_less_than_float32(
    dtype: torch.dtype | None, tf32: bool, reduces: bool
) -> None:
    precision = Precision(device_type="cuda", dtype=dtype, tf32=tf32)
    with pytest.raises(ZeroDivisionError), precision.in_steps([torch.empty(4, 4)]):
        assert torch.backends.cuda.matmul.allow_tf32 is reduces
        1 / 0  # noqa: B018
    assert not torch.backends.cuda.matmul.allow_tf32


def test_only_the_passes_of_training_compute_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[bool, set[bool]] = {True: set(), False: set()}
    forward = TabularNet.forward

    def noted(net: TabularNet, *x: Tensor) -> Tensor:
        seen[net.training].add(torch.backends.cuda.matmul.allow_tf32)
        return forward(net, *x)

    monkeypatch.setattr(TabularNet, "forward", noted)
    strategy = spread(alone(), parameters())
    strategy.precision = replace(PLAIN, tf32=True)
    train(strategy, parameters(epochs=1))
    assert seen == {True: {True}, False: {False}}
    assert not torch.backends.cuda.matmul.allow_tf32


def gradients(module: torch.nn.Module, x: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, list[Tensor]]:
    """The outputs, and the gradients of the input and of each parameter."""
    leaf = x.clone().requires_grad_()
    module.zero_grad()
    with Precision(device_type="cpu", dtype=dtype).autocast():
        out = module(leaf)
    out.float().sin().sum().backward()
    found = [leaf.grad, *(parameter.grad for parameter in module.parameters())]
    return out, [gradient for gradient in found if gradient is not None]


@pytest.mark.parametrize("outputs", [1, 2, 5, 17])  # 17 for each of 4 members: too many for one product
def test_members_in_bfloat16_learn_what_they_learn_in_float32(outputs: int) -> None:
    torch.manual_seed(0)
    first = FirstBlock((3, 5), 16, dropout=0.0, members=4)
    net = torch.nn.Sequential(first, MembersOutput(16, outputs, members=4))
    x_BD = torch.randn(64, 8)
    assert len(x_BD) > first.linear.out_features  # the layer that serves all members at once
    (plain, expected), (reduced, found) = (gradients(net, x_BD, dtype) for dtype in (None, torch.bfloat16))
    assert gradients(first, x_BD, torch.bfloat16)[0].dtype is torch.bfloat16  # what is kept for the gradient
    torch.testing.assert_close(reduced.float(), plain, atol=0.03, rtol=0.03)
    assert len(found) == len(expected) == 1 + len(list(net.parameters()))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32
        # A value that is rounded to the other side of ReLU's zero has another gradient.
        assert float((one - other).norm() / other.norm()) < 0.1


@pytest.mark.parametrize("architecture", ["tabm", "realmlp", "mlp", "resnet"])
def test_each_network_learns_in_bfloat16_and_predicts_in_float32(tmp_path: Path, architecture: str) -> None:
    paths, schema = plant(tmp_path, "binary", rows=1500)
    settings = {
        "architecture": architecture, "epochs": 6, "members": 4, "num_bins": 8, "embedding_dim": 4,
        "hidden": (32, 32), "batch_size": 64, "learning_rate": 5e-3, "muon_learning_rate": 0.02,
    }  # fmt: skip
    found = fit(paths, schema, precision="bfloat16", **settings)
    plain = fit(paths, schema, precision="float32", name="plain", **settings)
    assert found.record.device_proof["precision"] == "bfloat16 autocast, float32 weights"
    assert plain.record.device_proof["precision"] == "float32"
    assert found.accuracy() > 0.75 and abs(found.accuracy() - plain.accuracy()) < 0.05
    assert not np.array_equal(found.test, plain.test)
    torch.set_float32_matmul_precision("highest")
    again = load_model(found.folder).predict(read_rows(paths, schema, "test"))
    np.testing.assert_allclose(again, found.test, atol=1e-6)


def test_a_training_that_goes_on_in_another_format_says_so(tmp_path: Path) -> None:
    def training_of(dtype: torch.dtype | None, epochs: int, minutes: float = 10.0) -> TrainingState:
        checkpoints = Checkpoints(tmp_path, minutes=minutes)
        strategy = spread(alone(dtype), parameters())
        return train(strategy, parameters(epochs=epochs), checkpoints=checkpoints)

    assert training_of(torch.bfloat16, 1, minutes=1e-9).notes == []
    training = training_of(None, 2)
    assert training.notes == [
        "until the checkpoint it was trained in bfloat16 autocast, float32 weights; from there on in float32",
        "resumed from a checkpoint after epoch 1",
    ]
    assert len(training.curve) == 2


@pytest.mark.parametrize(("precision", "threads"), [("float32", 2), ("bfloat16", 1)])
def test_a_network_takes_the_cores_of_its_trees_only_where_that_changes_no_digit(
    tmp_path: Path, precision: str, threads: int
) -> None:
    paths, schema = plant(tmp_path, "binary", rows=300)
    spec = TrialSpec(name="neural-s7", model="neural", engine="torch", seed=7, fold=None, lane=0, gang=(0,))
    trial = made_trial(paths, schema, spec, "cpu", precision=precision, epochs=2)
    lane = trial.lane.model_copy(update={"threads": 2})
    before = torch.get_num_threads()
    try:
        Torch(Platform()).run(replace(trial, lane=lane, cores_are_free=lambda: True))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


_RANK = """
import os, sys, torch, torch.distributed as dist
from sparkgpu.neural.strategies.base import RankPlace
from sparkgpu.neural.strategies.data_parallel import DistributedDataParallel
from sparkgpu.neural.training.precision import Precision
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", store=dist.FileStore(folder + "/store", 2), rank=rank, world_size=2)
for dtype in (torch.bfloat16, torch.bfloat16 if rank else None):
    place = RankPlace(device=torch.device("cpu"), precision=Precision(device_type="cpu", dtype=dtype))
    print(DistributedDataParallel(place).precision, flush=True)
os._exit(0)  # as ranks of a run end: what tears down gloo's threads at exit may abort the process
"""


@pytest.mark.process
def test_ranks_on_processors_of_both_kinds_agree_on_float32(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK, str(rank), str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    assert [rank.communicate(timeout=120)[0] for rank in ranks] == [
        "bfloat16 autocast, float32 weights\nfloat32\n"
    ] * 2
    assert [rank.returncode for rank in ranks] == [0, 0]
