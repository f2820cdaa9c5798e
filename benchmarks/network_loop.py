"""Times the training loop against a bare loop of torch: the same network, optimizer and rows, no validation.

    python benchmarks/network_loop.py [RUN_DIR] [--rounds 7] [--steps 60] [--threads 1] [--precision float32]

One process takes both in turn, round by round. The rows are those of a finished run, with the network that a
run with nothing but `--target` trains on them; without `RUN_DIR` they are generated (20,000 rows of 16
numbers, 26 classes). Quote the median of the ratios of processor seconds, which other work disturbs less.
The bare loop draws a permutation, gathers batches, computes the gradient of the mean loss, clips it and takes
a step; it knows neither schedules nor places, checkpoints, memory or time limits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from sparkgpu.core.config.models import NeuralConfig
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.values import Precision
from sparkgpu.core.plan.defaults import fill, neural_defaults
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import read_schema
from sparkgpu.neural.nets.network import build_net, find_network, input_shape
from sparkgpu.neural.nets.tabular_net import TabularNet
from sparkgpu.neural.preprocess import QuantileNormal
from sparkgpu.neural.rows.resident import BatchSource, ResidentRows, ResidentSource, raw_rows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.optimizer import make_optimizer
from sparkgpu.neural.training.precision import choose_precision
from sparkgpu.neural.training.train import train

CPU = torch.device("cpu")
MOST_NORM = 1.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """Prepared rows, and what the network is built from."""

    rows: ResidentRows
    objective: Objective
    size: TableSize
    transform: QuantileNormal
    num_levels: tuple[int, ...]

    def config(self, precision: Precision = "float32") -> NeuralParameters:
        asked = NeuralConfig(epochs=1, patience=0, strategy="single", precision=precision)
        filled = fill(asked, neural_defaults(asked, "fast", "cpu", self.size))
        filled = filled.model_copy(update={"micro_batch_size": filled.batch_size})
        return NeuralParameters.model_validate(filled.model_dump(exclude_none=True))

    def net(self, config: NeuralParameters) -> TabularNet:
        torch.manual_seed(7)
        outputs = max(self.size.num_classes, 1)
        return build_net(config, input_shape(config, self.transform, self.num_levels, outputs))


def of_run(root: Path) -> Task:
    paths = RunPaths(root=root)
    schema = read_schema(paths)
    rows = read_rows(paths, schema, "train")
    objective = Objective.fit(schema.task, rows.label_N, None)
    raw = raw_rows(rows, objective, mean_weight=0.0)
    transform = QuantileNormal.fit(raw.numeric_NG, generator=torch.Generator().manual_seed(7))
    return Task(
        rows=raw.prepared(transform),
        objective=objective,
        size=TableSize.of(schema),
        transform=transform,
        num_levels=tuple(len(feature.levels) for feature in schema.categorical),
    )


def generated() -> Task:
    generator = torch.Generator().manual_seed(0)
    numeric_NF = torch.randn((20_000, 16), generator=generator)
    transform = QuantileNormal.fit(numeric_NF, generator=generator)
    rows = ResidentRows(
        numeric_NG=transform.transform(numeric_NF),
        codes_NK=torch.empty((20_000, 0), dtype=torch.int32),
        target_N=torch.randint(0, 26, (20_000,), generator=generator),
        weight_N=None,
    )
    size = TableSize(task="multiclass", train_rows=20_000, num_features=16, num_classes=26)
    objective = Objective(task="multiclass")
    return Task(rows=rows, objective=objective, size=size, transform=transform, num_levels=())


@dataclass(frozen=True, kw_only=True)
class _FirstSteps:
    """The first steps of each epoch (a `BatchSource`)."""

    source: ResidentSource
    rows: int

    def __len__(self) -> int:
        return self.rows

    def batches(
        self, *, seed: int, epoch: int, batch_size: int, first: int, part: Callable[[int], slice]
    ) -> Iterator[tuple[ResidentRows, int]]:
        found = self.source.batches(seed=seed, epoch=epoch, batch_size=batch_size, first=first, part=part)
        for _ in range(self.rows // batch_size):
            yield next(found)


def ours(task: Task, steps: int, precision: Precision) -> Callable[[], None]:
    config = task.config(precision)
    strategy = Strategy(CPU, choose_precision(config, CPU, "cpu"))
    strategy.spread(task.net(config), task.objective)
    source: BatchSource = _FirstSteps(source=ResidentSource(rows=task.rows), rows=steps * config.batch_size)
    one_row = task.rows.part(slice(0, 1))

    def go() -> None:
        train(
            strategy, source, one_row, config=config, recipe=find_network(config).recipe, seed=7,
            report=lambda done, epoch, value: None,
        )  # fmt: skip

    return go


def bare(task: Task, steps: int) -> Callable[[], None]:
    config = task.config()
    net, recipe = task.net(config), find_network(config).recipe
    for name, module in list(net.named_modules()):
        for child, found in list(module.named_children()):
            if type(found).__name__ == "Dropout":  # torch's own takes longer, but is what a bare loop has
                setattr(net.get_submodule(name), child, nn.Dropout(config.dropout))
    numeric, codes, target = task.rows.numeric_NG, task.rows.codes_NK, task.rows.target_N

    def go() -> None:
        optimizer = make_optimizer(net, config, recipe)
        net.train()
        for index in torch.randperm(len(target)).split(config.batch_size)[:steps]:
            optimizer.zero_grad(set_to_none=True)
            outputs = net(numeric[index], codes[index])
            task.objective.loss(outputs, target[index]).mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), MOST_NORM)
            optimizer.step()

    return go


def timed(go: Callable[[], None]) -> tuple[float, float]:
    """Processor and wall seconds."""
    processor, wall = time.process_time(), time.perf_counter()
    go()
    return time.process_time() - processor, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="float32", help="of ours; the bare loop's is float32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task = of_run(options.run_dir) if options.run_dir else generated()
    steps = min(options.steps, len(task.rows) // task.config().batch_size)
    loops = {"ours": ours(task, steps, options.precision), "bare": bare(task, steps)}
    for go in loops.values():
        go()
    ratios = []
    for _ in range(options.rounds):
        found = {name: timed(go) for name, go in loops.items()}
        ratios.append([a / b for a, b in zip(found["ours"], found["bare"], strict=True)])
        line = ", ".join(f"{name} {each[0] / steps * 1e3:.2f} ms a step" for name, each in found.items())
        print(f"{line}: ratio {ratios[-1][0]:.3f} of processor seconds, {ratios[-1][1]:.3f} of wall seconds")
    processor, wall = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"median ratio {processor:.3f} of processor seconds, {wall:.3f} of wall seconds")


if __name__ == "__main__":
    main()
