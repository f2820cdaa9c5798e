"""What one training step of each network costs a GPU, counted without one: kernels, bytes, operations.

    python benchmarks/gpu/step.py [--networks tabm mlp] [--operations]

Rows, weights and moments have shapes and no memory (torch's fake tensors), for which networks and optimizer
do what they do on a GPU. Table, preset and number format are those of `networks.py` with a million rows. The
columns: kernels of a step that is started operation by operation; those started beside a CUDA graph; what a
step moves; and the operations of its matrix products.
"""

from __future__ import annotations

import argparse

import torch
from counted import Counted
from networks import LEVELS, NUM_NUMBERS, Subject
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _foreach_utils

from sparkgpu.neural.memory_plan import _replace
from sparkgpu.neural.nets.dropout import Place
from sparkgpu.neural.nets.network import build_net
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.fixed_step import CudaGraph, FixedStep, Work
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.optimizer import make_optimizer
from sparkgpu.neural.training.precision import Precision

_ROWS = 100_000  # of the table that batches are taken from


class _Nothing(CudaGraph):
    """A graph whose repetitions start nothing that is counted."""

    needs_proof = False

    def __init__(self) -> None:
        pass

    def warm(self, work: Work) -> None:
        work()

    def capture(self, work: Work) -> None:
        pass

    def replay(self) -> None:
        pass


def counted(subject: Subject) -> tuple[Counted, Counted, int]:
    """A plain step, what is started beside a graph, and the rows of a batch."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    net = build_net(subject.config, subject.shape)
    for module in net.modules():
        _replace(module._parameters, lambda value: nn.Parameter(mode.from_tensor(value.detach())))
        _replace(module._buffers, mode.from_tensor)
    net.to = lambda device: net  # type: ignore[method-assign,misc,assignment]
    precision = Precision(device_type="cpu", dtype=torch.bfloat16)
    strategy = Strategy(RankPlace(device=torch.device("cpu"), precision=precision))
    recipe, size = subject.network.recipe, subject.config.batch_size
    with mode:
        strategy.spread(net, Objective(task="binary"))
        strategy.module.train()
        optimizer = make_optimizer(net, subject.config, recipe)
        table = ResidentRows(
            numeric_NG=torch.zeros(_ROWS, NUM_NUMBERS),
            codes_NK=torch.zeros(_ROWS, len(LEVELS), dtype=torch.int32),
            target_N=torch.zeros(_ROWS, dtype=torch.int64),
            weight_N=None,
        )
        index_B = torch.zeros(size, dtype=torch.int64)

        def step_on(batch: ResidentRows, step: int) -> None:
            strategy.backward(batch, Place(seed=0, step=step, first_row=0, batch_rows=size))
            strategy.step(optimizer, recipe.most_gradient_norm)

        with Counted() as plain:
            step_on(table.take(index_B), 0)
        fixed = FixedStep(strategy, optimizer, subject.config, recipe, 0, torch.zeros(()), _Nothing())
        for step in range(4):  # three to warm up; the fourth is captured
            fixed.take(step_on, table.take(index_B), step, 0.0)
        with Counted() as beside:
            fixed.take(step_on, table.take(index_B, fixed.rows), 4, 0.01)
    return plain, beside, size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", default=["tabm", "realmlp", "mlp", "resnet"])
    parser.add_argument("--preset", default="balanced")
    parser.add_argument("--operations", action="store_true", help="also name each operation")
    asked = parser.parse_args()
    _foreach_utils._foreach_supported_types.append(FakeTensor)
    print("| network | rows | kernels | beside a graph | MB | GFLOP |\n|---|---:|---:|---:|---:|---:|")
    for name in asked.networks:
        options = argparse.Namespace(device="cpu", rows=10**6, preset=asked.preset, precision="float32")
        plain, beside, size = counted(Subject(name, options))
        cells = (size, plain.kernels, beside.kernels, f"{plain.bytes / 1e6:,.0f}", f"{plain.flops / 1e9:.1f}")
        print(f"| {name} | {' | '.join(map(str, cells))} |", flush=True)
        if asked.operations:
            for operation, moved in plain.bytes_of.most_common():
                print(f"{moved / 1e6:12,.1f} MB {plain.kernels_of[operation]:4d} {operation}")


if __name__ == "__main__":
    main()
