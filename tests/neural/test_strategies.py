"""Every strategy trains the same network as `single`, with 4 gloo processes started once for all.

`dp` alone is one process that uses several GPUs; on the CPU it is `single`, so here only its cuts are tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import alone, fit, plant
from ranks_equivalence import CASES, SETTINGS, STRATEGIES, rows, spread, supports
from torch import Tensor, nn

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.neural.nets.dropout import Dropout, Place, set_place
from sparkgpu.neural.nets.network import find_network
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.strategies.data_parallel import DataParallel, _OwnRows, device_place
from sparkgpu.neural.training.optimizer import make_optimizer
from sparkgpu.neural.training.precision import Precision

MOST_DIFFERENCE, MOST_IN_BFLOAT16 = 1e-5, 5e-3


# Blocks with members, the form of the default network; the other forms take a minute more.
QUICK = ("tabm",)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    cases = CASES if request.config.getoption("--slow") else QUICK
    out = tmp_path_factory.mktemp("ranks") / "found.json"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
        str(Path(__file__).with_name("ranks_equivalence.py")), str(out), *cases,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr[-3000:]
    results: dict[str, Any] = json.loads(out.read_text())
    return results


@pytest.mark.process
@pytest.mark.parametrize(
    ("case", "strategy"),
    [
        pytest.param(case, strategy, marks=() if case in QUICK else pytest.mark.slow)
        for case in CASES
        for strategy in STRATEGIES
        if supports(case, strategy)
    ],
)
def test_gradients_losses_and_weights_are_those_of_one_device(
    found: dict[str, Any], case: str, strategy: str
) -> None:
    result = found[f"{case}: {strategy}"]
    in_bfloat16 = case.endswith("bfloat16")  # whose rounding single steps of Adam and Muon enlarge
    most = MOST_IN_BFLOAT16 if in_bfloat16 else MOST_DIFFERENCE
    assert result["gradients"] < most
    assert result["curve"] < most
    assert in_bfloat16 or result["weights"] < most
    assert result["learned"] > 0


IN_FLOAT32 = """
import os, sys
import torch, torch.distributed as dist
from planted import parameters
from ranks_equivalence import rows, spread
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.strategies.pipeline import PipelineParallel
from sparkgpu.neural.training.precision import Precision

dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 1), rank=0, world_size=1)
bfloat16 = Precision(device_type="cpu", dtype=torch.bfloat16)
place = RankPlace(device=torch.device("cpu"), precision=bfloat16, batch_size=64, micro_rows=16)
one, other = (
    spread(strategy(place), parameters(hidden=(32, 32))).mean_loss(rows(100, "binary", 1))[0]
    for strategy in (Strategy, PipelineParallel)
)
print(abs(one - other) < 1e-6, flush=True)  # in bfloat16 they differ by a thousandth
os._exit(0)
"""


@pytest.mark.process
def test_a_pipeline_that_trains_in_bfloat16_validates_in_float32(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IN_FLOAT32, str(tmp_path / "store")],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert ended.stdout == "True\n", ended.stderr


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize(("batch", "micro"), [(64, 64), (64, 11), (64, 32), (5, 5), (50, 16)])
def test_dp_drops_on_each_device_what_one_device_drops_in_the_same_rows(
    batch: int, micro: int, devices: int
) -> None:
    dropout, values = Dropout(0.4), torch.arange(1.0, batch * 9 + 1).reshape(batch, 9)
    whole = Place(seed=7, step=3, first_row=0, batch_rows=batch)
    dropout.place = whole
    expected = dropout(values)
    found = []
    for first in range(0, batch, micro):
        rows = values[first : first + micro]
        # What nn.DataParallel gives to its devices, the last of which may get no rows at all.
        for index, own in enumerate(rows.chunk(devices)):
            dropout.place = device_place(replace(whole, first_row=first), len(rows), devices, index)
            found.append(dropout(own))
    assert torch.equal(torch.cat(found), expected)


def replica(module: nn.Module) -> Any:
    """A copy as nn.DataParallel makes it for a device: its parameters are tensors that are no parameters."""
    made = module._replicate_for_data_parallel()
    for name, child in module.named_children():
        made._modules[name] = replica(child)
    for name, value in module.named_parameters(recurse=False):
        setattr(made, name, value * 1.0)
    return made


def on_a_copy(module: nn.Module, *x: Tensor) -> Tensor:
    """A pass of nn.DataParallel, which makes a copy for each."""
    out: Tensor = replica(module)(*x)
    return out


def spread_one(case: str, *, dp: bool) -> Strategy:
    """A network as `dp` or `single` has it; nn.DataParallel itself takes no device here."""
    strategy = alone()
    if dp:
        strategy = DataParallel(
            RankPlace(device=torch.device("cpu"), precision=Precision(device_type="cpu", dtype=None))
        )
        strategy._devices = [0, 1]
    return spread(strategy, NeuralParameters(**{**SETTINGS, **CASES[case]}))


@pytest.mark.parametrize("case", ["tabm", "tabm, odd depth", "mlp", "resnet", "realmlp"])
def test_the_copies_that_dp_makes_compute_what_the_network_does(case: str) -> None:
    batch, place = rows(64, "binary", 1), Place(seed=9, step=0, first_row=0, batch_rows=64)
    gradients = []
    for is_dp in (False, True):
        strategy = spread_one(case, dp=is_dp)
        if isinstance(strategy.module, nn.DataParallel):
            strategy.module.forward = partial(on_a_copy, strategy.module.module)
        strategy.net.train()
        strategy.module.train()
        strategy.backward(batch, place)
        gradients.append([p.grad for p in strategy.net.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 0
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_each_copy_of_dp_computes_in_the_format_of_the_training_though_in_a_thread_of_its_own() -> None:
    strategy = spread_one("mlp", dp=True)
    place = Place(seed=9, step=0, first_row=0, batch_rows=64)
    set_place(strategy._dropouts, place)
    batch, found = rows(64, "binary", 1), []
    own = _OwnRows(strategy.net, 2, Precision(device_type="cpu", dtype=torch.float16))  # not autocast's own
    own.micro_rows = 64

    def in_a_thread() -> None:
        with torch.amp.autocast("cpu", enabled=own.training):  # as torch's parallel_apply has it
            found.append(replica(own)(batch.numeric_NG, batch.codes_NK).dtype)

    for training in (True, False, True):
        own.train(training)
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
    assert found == [torch.float16, torch.float32, torch.float16]


def test_dp_gives_to_muon_what_one_device_gives_to_it() -> None:
    config = NeuralParameters(**{**SETTINGS, **CASES["tabm"]})
    recipe = find_network(config).recipe
    for is_dp in (False, True):
        optimizer = make_optimizer(spread_one("tabm", dp=is_dp).net, config, recipe)
        assert [len(group["params"]) for group in optimizer.param_groups if group["muon"]] == [4]


@pytest.mark.gpu
@pytest.mark.parametrize("micro_batch_size", [None, 11])
def test_dp_on_several_gpus_learns_what_one_gpu_does(tmp_path: Path, micro_batch_size: int | None) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("dp needs two GPUs")
    paths, schema = plant(tmp_path, "binary")
    settings = {"dropout": 0.2, "epochs": 3, "micro_batch_size": micro_batch_size, "precision": "float32"}
    expected = fit(paths, schema, "cuda:0", name="alone", **settings)
    spec = TrialSpec(
        name="dp", model="neural", engine="torch", seed=7, fold=None, lane=0, gang=(0, 1), strategy="dp"
    )
    found = fit(paths, schema, "cuda:0", spec=spec, **settings)
    np.testing.assert_allclose(found.test, expected.test, atol=1e-4)
