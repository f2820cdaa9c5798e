"""Rows per second of the networks on a device, beside other ways, and how much of the device they use.

    python benchmarks/gpu/networks.py                                # GPU 0, a million rows
    python benchmarks/gpu/networks.py --device cpu --rows 20000 --preset fast --runs 1    # that it works

On the same generated rows (24 numbers, 6 categories, two classes) and with the same network, batch and number
format it times: training as a run does it, with and without a CUDA graph; a bare loop of torch over rows on
the device; and a loop over a DataLoader, as tutorials have it. Where they are installed it also times
pytabkit's TabM and RealMLP with their own defaults, and XGBoost. Each is run several times in turn, after a
warm-up, and the median is printed.

The shares compare what a step reads, writes and multiplies with what the device does in a plain copy and in a
large matrix product of the same format. A step's bytes are those of the inputs and outputs of its operations,
so a cache can make the share greater than 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from counted import Counted
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sparkgpu.core.config import toml
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.neural.nets.dropout import Dropout, Place
from sparkgpu.neural.nets.network import InputShape, build_net, find_network
from sparkgpu.neural.rows.resident import ResidentRows, ResidentSource
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.fixed_step import CudaGraph, reason_against
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.precision import choose_precision
from sparkgpu.neural.training.train import Training

NUM_NUMBERS, LEVELS = 24, (3, 5, 9, 17, 40, 300)
_LOADED_ROWS = 50_000  # a DataLoader needs no more to show its speed
_TREES = 100


def made_rows(number: int) -> ResidentRows:
    random = torch.Generator().manual_seed(0)
    numbers = torch.randn((number, NUM_NUMBERS), generator=random)
    codes = [torch.randint(0, n, (number,), generator=random, dtype=torch.int32) for n in LEVELS]
    target = (numbers[:, 0] * numbers[:, 1] + numbers[:, 2] + codes[1] > 2).long()
    return ResidentRows(numeric_NG=numbers, codes_NK=torch.stack(codes, 1), target_N=target, weight_N=None)


class Subject:
    """One network with a preset's parameters on one device."""

    def __init__(self, architecture: str, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        size = TableSize(task="binary", train_rows=options.rows, num_features=30, num_classes=2)
        resolved = resolve(
            toml.load(options={"neural.architecture": architecture}), preset=options.preset,
            strategy="single", size=size, device="cuda:0", tree_device=lambda engine: "cpu",
        ).neural  # fmt: skip
        self.config: NeuralParameters = resolved.model_copy(
            update={"epochs": 2, "patience": 0, "precision": options.precision}
        )
        self.network = find_network(self.config)
        edges = (torch.linspace(-2.5, 2.5, self.config.num_bins + 1),) * NUM_NUMBERS
        self.shape = InputShape(
            num_numeric=NUM_NUMBERS,
            num_levels=LEVELS,
            num_outputs=2,
            bins=edges if self.network.bins else (),
        )
        self.precision = choose_precision(self.config, self.device, str(self.device))

    def strategy(self) -> Strategy:
        torch.manual_seed(0)
        strategy = Strategy(RankPlace(device=self.device, precision=self.precision))
        strategy.spread(build_net(self.config, self.shape), Objective(task="binary"))
        return strategy

    def ours(self, rows: ResidentRows, *, graph: bool) -> float:
        """Rows per second of the second epoch of a training."""
        strategy = self.strategy()
        against = reason_against(strategy, self.config, None)
        if graph and against is not None:
            raise Skipped(against)
        training = Training(
            strategy=strategy, source=ResidentSource(rows=rows), valid_rows=rows.part(slice(0, 1_024)),
            config=self.config, recipe=self.network.recipe, seed=1, report=lambda done, epoch, value: None,
            graph=CudaGraph(self.device) if graph else None,
        ).run()  # fmt: skip
        if graph and training.plain_steps is not None:
            raise Skipped(training.plain_steps)
        first, second = training.curve
        return len(rows) / (second.elapsed_s - first.elapsed_s)

    def bare(self, rows: ResidentRows) -> float:
        """The shortest loop over the same network and rows on the device."""

        def batches() -> Iterable[tuple[Tensor, Tensor, Tensor]]:
            for index in torch.randperm(len(rows), device=self.device).split(self.config.batch_size):
                yield rows.numeric_NG[index], rows.codes_NK[index], rows.target_N[index]

        return self._looped(batches, len(rows))

    def loaded(self, rows: ResidentRows) -> float:
        """The same loop over a DataLoader, with copies from pinned memory and two worker processes."""
        some = rows.part(slice(0, _LOADED_ROWS)).to(torch.device("cpu"))
        loader: DataLoader[Any] = DataLoader(
            TensorDataset(some.numeric_NG, some.codes_NK, some.target_N), batch_size=self.config.batch_size,
            shuffle=True, num_workers=2, persistent_workers=True, pin_memory=self.device.type == "cuda",
        )  # fmt: skip

        def batches() -> Iterable[tuple[Tensor, ...]]:
            for batch in loader:
                yield tuple(value.to(self.device, non_blocking=True) for value in batch)

        return self._looped(batches, len(some))

    def _looped(self, batches: Callable[[], Iterable[tuple[Tensor, ...]]], rows: int) -> float:
        torch.manual_seed(0)
        net = build_net(self.config, self.shape).to(self.device)
        for module in list(net.modules()):
            for name, child in module.named_children():
                if isinstance(child, Dropout):
                    setattr(module, name, nn.Dropout(child.p))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
        took = 0.0
        for _ in range(2):
            begin = time.perf_counter()
            for numbers, codes, target in batches():
                with self.precision.autocast():
                    outputs_BMC = net(numbers, codes)
                members = outputs_BMC.shape[1]
                loss = nn.functional.cross_entropy(
                    outputs_BMC.float().flatten(0, 1), target.repeat_interleave(members)
                )
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            wait_for(self.device)
            took = time.perf_counter() - begin
        return rows / took

    def work(self, rows: ResidentRows) -> Counted:
        """What the gradient of one step reads, writes and multiplies."""
        strategy = self.strategy()
        batch = rows.part(slice(0, self.config.batch_size))
        with Counted() as counted:
            strategy.backward(batch, Place(seed=0, step=0, first_row=0, batch_rows=len(batch)))
        return counted


class Skipped(Exception):
    """Why something is not timed."""


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fastest(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds of the fastest of five runs."""
    found = []
    for _ in range(6):
        wait_for(device)
        begin = time.perf_counter()
        work()
        wait_for(device)
        found.append(time.perf_counter() - begin)
    return min(found[1:])


def peaks(device: torch.device, dtype: torch.dtype | None) -> tuple[float, float]:
    """Bytes per second of a copy, and operations per second of a matrix product in this format."""
    on_gpu = device.type == "cuda"
    values = torch.zeros(2**28 if on_gpu else 2**25, device=device)
    other = torch.empty_like(values)
    copy_s = fastest(device, lambda: other.copy_(values))
    size = 8_192 if on_gpu else 1_024
    matrix = torch.randn((size, size), device=device, dtype=dtype or torch.float32)
    product_s = fastest(device, lambda: matrix @ matrix)
    return 2 * values.nbytes / copy_s, 2 * size**3 / product_s


def pytabkit(name: str, rows: ResidentRows, device: torch.device) -> float:
    """Rows per second of pytabkit's training with its defaults, for two epochs; it validates on a fifth."""
    if importlib.util.find_spec("pytabkit") is None:
        raise Skipped("pytabkit is not installed")
    import pandas as pd
    import pytabkit as package

    frame = pd.DataFrame(rows.numeric_NG.cpu().numpy()).add_prefix("x")
    for column, code in enumerate(rows.codes_NK.cpu().numpy().T):
        frame[f"c{column}"] = pd.Categorical(code)
    model = getattr(package, f"{name}_Classifier")(device=str(device), n_epochs=2, verbosity=0)
    begin = time.perf_counter()
    model.fit(frame, rows.target_N.cpu().numpy())
    return 2 * 0.8 * len(rows) / (time.perf_counter() - begin)


def xgboost(rows: ResidentRows, device: torch.device) -> float:
    """Rows times trees per second."""
    if importlib.util.find_spec("xgboost") is None:
        raise Skipped("xgboost is not installed")
    import xgboost as package

    matrix_NF = np.hstack([rows.numeric_NG.cpu().numpy(), rows.codes_NK.cpu().numpy().astype(np.float32)])
    data = package.QuantileDMatrix(matrix_NF, rows.target_N.cpu().numpy())
    settings = {"objective": "binary:logistic", "max_depth": 8, "tree_method": "hist", "device": str(device)}
    begin = time.perf_counter()
    booster = package.train(settings, data, num_boost_round=_TREES)
    took = time.perf_counter() - begin
    used = package.Booster.save_config(booster)
    if device.type == "cuda" and '"device":"cuda' not in used:
        raise Skipped("xgboost did not use the GPU")
    return len(rows) * _TREES / took


def timed(work: Callable[[], float], runs: int) -> tuple[str, float | None]:
    """The median as text, and as a number; or why there is none."""
    try:
        found = statistics.median(work() for _ in range(runs))
    except Skipped as reason:
        return f"– ({reason})", None
    return f"{found:,.0f}", found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--networks", nargs="*", default=["tabm", "realmlp", "mlp", "resnet"])
    parser.add_argument("--preset", default="balanced")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    device = torch.device(options.device)
    name = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    )
    rows = made_rows(options.rows).to(device)
    print(f"{device} ({name}), torch {torch.__version__}, {len(rows):,} rows, preset {options.preset}\n")
    print("| network | way | rows/s | of the bare loop | of the bandwidth | of the peak |")
    print("|---|---|---:|---:|---:|---:|")
    for architecture in options.networks:
        subject = Subject(architecture, options)
        work, (bandwidth, peak) = subject.work(rows), peaks(device, subject.precision.dtype)
        ways: dict[str, Callable[[], float]] = {
            "bare loop": lambda s=subject: s.bare(rows),  # type: ignore[misc]
            "sparkgpu, CUDA graph": lambda s=subject: s.ours(rows, graph=True),  # type: ignore[misc]
            "sparkgpu, plain steps": lambda s=subject: s.ours(rows, graph=False),  # type: ignore[misc]
            "DataLoader loop": lambda s=subject: s.loaded(rows),  # type: ignore[misc]
        }
        bare: float | None = None
        for way, run in ways.items():
            text, speed = timed(run, options.runs)
            bare = bare or speed
            cells = [architecture, way, text]
            if speed is not None and bare is not None:
                steps = speed / subject.config.batch_size
                shares = (speed / bare, steps * work.bytes / bandwidth, steps * work.flops / peak)
                cells += [f"{share:.2f}" for share in shares]
            print("| " + " | ".join(cells + [""] * (6 - len(cells))) + " |", flush=True)
    for label, run in {
        "TabM": lambda: pytabkit("TabM_D", rows, device),
        "RealMLP": lambda: pytabkit("RealMLP_TD", rows, device),
        f"XGBoost, rows × {_TREES} trees": lambda: xgboost(rows, device),
    }.items():
        way = "XGBoost" if label.startswith("X") else "pytabkit"
        print(f"| {label} | {way} | {timed(run, options.runs)[0]} | | | |", flush=True)
    print(f"\nCopy: {bandwidth / 1e9:,.0f} GB/s; matrix product: {peak / 1e12:,.2f} TFLOP/s.")


if __name__ == "__main__":
    main()
