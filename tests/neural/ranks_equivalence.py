"""Run by torchrun: trains one small network with every strategy and writes each difference from `single`.

    torchrun --nproc-per-node 4 ranks_equivalence.py OUT.json CASE...

All strategies share one process start, since starting takes longer than training.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from planted import alone
from torch import Tensor
from torch.distributed.tensor import DTensor

from sparkgpu.core.config.model_keys import NeuralConfig
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.dropout import Place
from sparkgpu.neural.nets.network import InputShape, build_net, find_network
from sparkgpu.neural.ranks import join, make_strategy
from sparkgpu.neural.rows.resident import ResidentRows, ResidentSource
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.checkpoint import Checkpoints, TrainingState
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.precision import choose_precision
from sparkgpu.neural.training.train import Training

SETTINGS: dict[str, Any] = {
    "dropout": 0.2, "epochs": 3, "batch_size": 64, "micro_batch_size": 64, "patience": 0,
    "learning_rate": 3e-3, "weight_decay": 1e-2, "schedule": "constant",
}  # fmt: skip
STRATEGIES = ("ddp", "fsdp", "tp", "pp", "dp_tp", "dp_pp")
CASES: dict[str, dict[str, Any]] = {
    "mlp": {"architecture": "mlp", "hidden": (32, 24, 16, 8)},
    "mlp, odd depth": {"architecture": "mlp", "hidden": (16, 16, 16, 16, 16)},
    "mlp, micro-batches": {"architecture": "mlp", "hidden": (32, 24, 16, 8), "micro_batch_size": 11},
    "mlp, activation checkpointing": {
        "architecture": "mlp", "hidden": (32, 24, 16, 8), "activation_checkpointing": True,
    },
    "tabm": {
        "architecture": "tabm", "hidden": (16, 16, 16, 16), "members": 4, "num_bins": 6, "embedding_dim": 3,
        "muon_learning_rate": 0.02,
    },
    "tabm, odd depth": {
        "architecture": "tabm", "hidden": (80, 16, 16, 16, 16), "members": 2, "num_bins": 6,
        "number_embedding": "cosine", "embedding_dim": 3,
    },
    "resnet": {"architecture": "resnet", "hidden": (16, 16, 16, 16)},
    "realmlp": {"architecture": "realmlp", "hidden": (16, 16, 16, 16), "learning_rate": 0.04},
    "modernnca": {
        "architecture": "modernnca", "hidden": (8, 16), "embedding_dim": 4, "micro_batch_size": 11,
        "learning_rate": 1e-3,
    },
}  # fmt: skip
# Whole trainings: passes in bfloat16, validation after each epoch in float32, and passes again.
CASES |= {f"{name}, bfloat16": {**CASES[name], "precision": "bfloat16"} for name in ("mlp", "tabm", "resnet")}
TASKS = {"mlp": "binary", "mlp, odd depth": "regression", "tabm": "binary", "tabm, odd depth": "regression"}
NUM_LEVELS = (3, 50, 7)
BINS = (*(torch.linspace(-2.0, 2.0, 7) for _ in range(4)), torch.tensor([0.0, 1.0]))


def supports(case: str, strategy: str) -> bool:
    """Whether a case is made for a strategy; the configuration refuses the others."""
    if CASES[case]["architecture"] == "modernnca":
        return strategy == "ddp"
    if strategy in ("pp", "dp_pp"):
        return not CASES[case].get("activation_checkpointing")
    return not (strategy in ("tp", "dp_tp") and CASES[case]["architecture"] == "realmlp")


def rows(number: int, task: str, seed: int, *, with_ids: bool = False) -> ResidentRows:
    generator = torch.Generator().manual_seed(seed)
    numeric = torch.randn((number, 5), generator=generator)
    codes = torch.stack(
        [torch.randint(-1, n, (number,), generator=generator, dtype=torch.int32) for n in NUM_LEVELS], 1
    )
    signal = numeric[:, 0] + numeric[:, 1] * numeric[:, 2] + codes[:, 1] % 3
    target = signal if task == "regression" else torch.bucketize(signal, torch.tensor([0.0, 1.5]))
    if task == "binary":
        target = target.clamp(max=1)
    weight = torch.rand(number, generator=generator) + 0.5
    return ResidentRows(
        numeric_NG=numeric, codes_NK=codes, target_N=target, weight_N=weight / weight.mean(),
        row_id_N=torch.arange(number) if with_ids else None,
    )  # fmt: skip


def train_rows(config: NeuralParameters, task: str) -> ResidentRows:
    return rows(299, task, 1, with_ids=find_network(config).looks_up)


def gradients(strategy: Strategy) -> dict[str, Tensor]:
    """The whole network's gradients on the leading rank."""
    own = {
        name.removeprefix("module."): parameter.grad.full_tensor()
        if isinstance(parameter.grad, DTensor)
        else parameter.grad.clone()
        for name, parameter in strategy.module.named_parameters()
        if parameter.grad is not None
    }
    if strategy.name not in ("pp", "dp_pp"):
        return own
    parts: list[Any] = [None] * strategy.num_ranks
    dist.all_gather_object(parts, own)
    return {name: value for part in parts for name, value in part.items()}


def spread(strategy: Strategy, config: NeuralParameters, task: str = "binary") -> Strategy:
    """The strategy with a new network, the same one each time."""
    num_outputs = {"binary": 2, "regression": 1}.get(task, 3)
    shape = InputShape(num_numeric=5, num_levels=NUM_LEVELS, num_outputs=num_outputs, bins=BINS)
    torch.manual_seed(3)
    net, network = build_net(config, shape), find_network(config)
    if network.looks_up and network.start is not None:
        network.start(net, train_rows(config, task))
    strategy.spread(net, Objective(task=task))  # type: ignore[arg-type]
    return strategy


def train(
    strategy: Strategy,
    config: NeuralParameters,
    task: str = "binary",
    *,
    checkpoints: Checkpoints | None = None,
) -> TrainingState:
    """Train the network that the strategy holds."""
    return Training(
        strategy=strategy,
        source=ResidentSource(rows=train_rows(config, task)),
        valid_rows=rows(101, task, 2),
        config=config,
        recipe=find_network(config).recipe,
        seed=9,
        report=lambda done, epoch, value: None,
        checkpoints=checkpoints,
    ).run()


def trained(
    strategy: Strategy, config: NeuralParameters, task: str
) -> tuple[dict[str, Tensor], TrainingState, dict[str, Tensor]]:
    """The first batch's gradients, the training, and the final weights."""
    spread(strategy, config, task).module.train()
    source = ResidentSource(rows=train_rows(config, task))
    (batch, number), *_ = source.batches(seed=9, epoch=1, batch_size=64, first=0, part=strategy.part)
    place = Place(seed=9, step=0, first_row=strategy.part(number).start, batch_rows=number)
    strategy.backward(batch, place)
    found = gradients(strategy)
    training = train(strategy, config, task)
    return found, training, strategy.gather()


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def main() -> None:
    out = Path(sys.argv[1])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    join(NeuralConfig(), cpu, dist.FileStore(str(out.with_suffix(".store")), world_size), rank, world_size)
    found: dict[str, Any] = {}
    for case in sys.argv[2:]:
        settings = CASES[case]
        task = TASKS.get(case, "multiclass")
        config = NeuralParameters(**{**SETTINGS, **settings})
        reference = trained(alone(choose_precision(config, cpu, "cpu").dtype), config, task)
        for name in STRATEGIES:
            if not supports(case, name):
                continue
            start = time.perf_counter()
            strategy = make_strategy(name, config, cpu, "cpu")
            result = trained(strategy, config, task)
            if rank == 0:
                curves = zip(reference[1].curve, result[1].curve, strict=True)
                found[f"{case}: {name}"] = {
                    "gradients": difference(reference[0], result[0]),
                    "curve": max(max(abs(a.train - b.train), abs(a.valid - b.valid)) for a, b in curves),
                    "weights": difference(reference[2], result[2]),
                    "learned": result[1].curve[0].valid - result[1].curve[-1].valid,
                    "seconds": time.perf_counter() - start,
                }
    if rank == 0:
        out.write_text(json.dumps(found, indent=1))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
