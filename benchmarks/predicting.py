"""How fast, and in how much memory, a run's models predict a table, against what a user would write.

``python benchmarks/predicting.py RUN_DIR SOURCE [--times 10]``: for trees, network and blend the rows/s of
the models alone on encoded rows, beside LightGBM's own predict with as many rounds of 63 leaves, and the bare
network in a plain loop of torch over the same batches; then seconds and peak memory of ``sparkgpu predict``,
reading and writing included, on the source and on a table of `--times` as many rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

import sparkgpu
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import Rows, read_rows
from sparkgpu.predict.fitted import FittedModel

MODELS = ("trees", "neural", "blend")
_BATCH_ROWS = 131_072
_TORCH_ROWS = 8_192


_LAUNCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def command(run: Path, source: Path, model: str, out: Path) -> tuple[float, int]:
    """Seconds and peak bytes of ``sparkgpu predict`` as a process.

    A small process starts it: the peak of a child begins with the memory of the process that it came from.
    """
    out.unlink(missing_ok=True)
    words = ["predict", run, source, "--out", out, "--model", model, "--quiet"]
    start = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", _LAUNCH, sys.executable, "-m", "sparkgpu", *map(str, words)],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return time.perf_counter() - start, int(ended.stdout.split()[-1])


def best_s(runs: int, call: Callable[[], Any]) -> float:
    """The least of several times, in seconds."""
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def lightgbm_s(run: Path, model: FittedModel, rows: Rows, runs: int) -> float:
    """LightGBM with as many rounds as the trees of the run, in its own predict."""
    import lightgbm

    from sparkgpu.trees.boosting import feature_frame

    paths = RunPaths(root=run)
    fit = json.loads(paths.trial(next(iter(model.members))).fit.read_text(encoding="utf-8"))
    valid = read_rows(paths, model.schema, "valid")
    settings: dict[str, Any] = {"objective": model.task, "num_leaves": 63, "verbosity": -1}
    if model.task == "multiclass":
        settings["num_class"] = len(model.schema.classes)
    data = lightgbm.Dataset(feature_frame(valid, model.schema), valid.label_N)
    booster = lightgbm.train(settings, data, num_boost_round=fit["best_iteration"])
    frame = feature_frame(rows, model.schema)
    return best_s(runs, lambda: booster.predict(frame))


def torch_s(network: torch.nn.Module, rows: Rows, runs: int) -> float:
    """The bare loop over batches, in plain torch."""
    raw = torch.from_numpy(rows.numeric_NF).split(_TORCH_ROWS)
    codes = torch.from_numpy(rows.codes_NK).split(_TORCH_ROWS)

    @torch.no_grad()
    def predict() -> None:
        for part in zip(raw, codes, strict=True):
            network(*part)

    return best_s(runs, predict)


def show_rates(run: Path, table: pa.Table, name: str, runs: int) -> None:
    """The model alone, and what a user would have instead."""
    model = sparkgpu.load(run, name)
    encoder = model.encoder()
    columns = table.select(encoder.columns)
    batches = columns.to_batches(_BATCH_ROWS)
    encode_s = best_s(runs, lambda: [model.encoder().rows(batch) for batch in batches])
    rows = encoder.rows(columns)
    model_s = best_s(runs, lambda: [one.predict(rows) for _, one in model._models])
    found = {"encoding": encode_s, "model": model_s}
    if name == "trees":
        found["LightGBM's predict"] = lightgbm_s(run, model, rows, runs)
    if name == "neural":
        network = model._models[0][1]
        assert isinstance(network, torch.nn.Module)
        found["plain torch"] = torch_s(network, rows, runs)
    rates = ", ".join(f"{what} {len(table) / seconds:,.0f}" for what, seconds in found.items())
    print(f"{name}, rows/s: {rates}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    table = pq.read_table(options.source)
    print(f"{options.source.name}: {len(table):,} rows, {os.cpu_count()} cores, torch {torch.__version__}")
    for name in MODELS:
        show_rates(options.run_dir, table, name, options.runs)
    with tempfile.TemporaryDirectory() as folder:
        out, many = Path(folder) / "out.parquet", Path(folder) / "many.parquet"
        with pq.ParquetWriter(many, table.schema) as writer:
            for _ in range(options.times):
                writer.write_table(table, row_group_size=_BATCH_ROWS)
        rows = len(table) * options.times
        for name in MODELS:
            once_s, once = command(options.run_dir, options.source, name, out)
            many_s, peak = command(options.run_dir, many, name, out)
            print(
                f"sparkgpu predict --model {name}: {once_s:.1f} s and {once / 2**20:,.0f} MiB; with "
                f"{options.times} times the rows {many_s:.1f} s ({rows / many_s:,.0f} rows/s) and "
                f"{peak / 2**20:,.0f} MiB, {peak / once:.2f} times as much",
                flush=True,
            )


if __name__ == "__main__":
    main()
