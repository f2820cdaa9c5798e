"""Times training on the resident table against a DataLoader with the same network on the same rows.

    python benchmarks/dataloader.py [--rows 200000] [--runs 3] [--workers 0 2] [--device cpu] [--threads N]

One process runs them in turn (resident, DataLoader, resident, ...), one epoch each after a warm-up epoch.
Quote the median of the ratios. MLP 256-256, batches of 1024, 30 numeric features, two classes.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from sparkgpu.core.config.models import DataLoaderConfig
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.network import build_net
from sparkgpu.neural.nets.shape import InputShape
from sparkgpu.neural.rows.loader import LoadedSource
from sparkgpu.neural.rows.resident import BatchSource, ResidentRows, ResidentSource
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.optimizer import Recipe
from sparkgpu.neural.training.precision import choose_precision
from sparkgpu.neural.training.train import train

NUM_FEATURES = 30


def make_rows(number: int) -> ResidentRows:
    generator = torch.Generator().manual_seed(0)
    numeric = torch.randn((number, NUM_FEATURES), generator=generator)
    target = (numeric[:, 0] * numeric[:, 1] + numeric[:, 2] > 0).long()
    return ResidentRows(
        numeric_NG=numeric,
        codes_NK=torch.empty((number, 0), dtype=torch.int32),
        target_N=target,
        weight_N=None,
    )


def rows_per_s(source: BatchSource, valid: ResidentRows, device: torch.device) -> float:
    """Training rows per second of one epoch, including validation on a few rows."""
    config = NeuralParameters(
        architecture="mlp", hidden=(256, 256), dropout=0.0, epochs=1, batch_size=1024, patience=0,
        learning_rate=1e-3, weight_decay=1e-4, precision="float32", schedule="constant",
        micro_batch_size=1024,
    )  # fmt: skip
    torch.manual_seed(0)
    strategy = Strategy(device, choose_precision(config, device, str(device)))
    shape = InputShape(num_numeric=NUM_FEATURES, num_levels=(), num_outputs=2)
    strategy.spread(build_net(config, shape), Objective(task="binary"))
    start = time.perf_counter()
    train(
        strategy, source, valid, config=config, recipe=Recipe(), seed=1,
        report=lambda done, epoch, value: None,
    )  # fmt: skip
    return len(source) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    rows = make_rows(options.rows)
    valid = rows.part(slice(0, 1024)).to(device)
    resident = ResidentSource(rows=rows.to(device))
    rows_per_s(ResidentSource(rows=rows.part(slice(0, 20_000)).to(device)), valid, device)
    for workers in options.workers:
        loaded = LoadedSource(rows, DataLoaderConfig(num_workers=workers), device)
        pairs = [
            (rows_per_s(resident, valid, device), rows_per_s(loaded, valid, device))
            for _ in range(options.runs)
        ]
        ratios = sorted(ours / theirs for ours, theirs in pairs)
        ours, theirs = (statistics.median(speeds) for speeds in zip(*pairs, strict=True))
        print(
            f"{workers} workers, {options.threads} threads: resident {ours:,.0f} rows/s, DataLoader "
            f"{theirs:,.0f} rows/s, ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
