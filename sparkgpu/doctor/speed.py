"""Trains the default network on made rows for some seconds: ``python -m sparkgpu.doctor.speed PRECISION``.

It prints one JSON object: the number format, rows per second, and whether the loss fell. The device is the
first GPU that CUDA shows, or the CPU if the argument ``--cpu`` is given.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from sparkgpu.config import toml
from sparkgpu.config.models import NeuralConfig
from sparkgpu.engines.neural.nets.dropout import Place
from sparkgpu.engines.neural.nets.network import build_net, find_network
from sparkgpu.engines.neural.nets.shape import InputShape
from sparkgpu.engines.neural.rows.resident import ResidentRows
from sparkgpu.engines.neural.strategies.base import Strategy
from sparkgpu.engines.neural.training.objective import Objective
from sparkgpu.engines.neural.training.optimizer import make_optimizer
from sparkgpu.engines.neural.training.precision import choose_precision
from sparkgpu.plan.defaults import resolve
from sparkgpu.plan.tree_defaults import TableSize

_ROWS, _COLUMNS = 20_000, 30
_WARM_UP = 5  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("precision")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    device = torch.device("cpu" if arguments.cpu else "cuda:0")
    name = "CPU" if arguments.cpu else torch.cuda.get_device_name(device)
    precision = choose_precision(NeuralConfig(precision=arguments.precision), device, name)
    size = TableSize(task="binary", train_rows=_ROWS, num_features=_COLUMNS, num_classes=2)
    config = resolve(
        toml.load(), preset="fast" if arguments.cpu else "balanced", strategy="single", size=size,
        device=str(device), tree_device=lambda engine: "cpu",
    ).neural  # fmt: skip
    torch.manual_seed(0)
    edges = torch.linspace(-2.0, 2.0, (config.num_bins or 1) + 1)
    shape = InputShape(num_numeric=_COLUMNS, num_levels=(), num_outputs=2, bins=(edges,) * _COLUMNS)
    numeric_NG = torch.randn(_ROWS, _COLUMNS)
    rows = ResidentRows(
        numeric_NG=numeric_NG,
        codes_NK=torch.zeros(_ROWS, 0, dtype=torch.int32),
        target_N=(numeric_NG[:, 0] + numeric_NG[:, 1] > 0).long(),
        weight_N=None,
    ).to(device)
    strategy = Strategy(device, precision)
    strategy.spread(build_net(config, shape), Objective(task="binary"))
    optimizer = make_optimizer(strategy.module, config, find_network(config).recipe)
    seen = rows.part(slice(config.batch_size))
    before = strategy.mean_loss(seen)
    strategy.module.train()
    steps, begin = 0, time.perf_counter()
    while steps < 2 * _WARM_UP or time.perf_counter() - begin < arguments.seconds:
        if steps == _WARM_UP:
            if device.type == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
        first = steps * config.batch_size % (_ROWS - config.batch_size)
        batch = rows.part(slice(first, first + config.batch_size))
        optimizer.zero_grad(set_to_none=True)
        place = Place(seed=0, step=steps, first_row=0, batch_rows=len(batch))
        strategy.backward(batch, place)
        strategy.step(optimizer, 1.0)
        steps += 1
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    found = {
        "precision": str(precision),
        "rows_per_s": round((steps - _WARM_UP) * config.batch_size / seconds),
        "loss_fell": strategy.mean_loss(seen) < before,
        "device": name,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
