"""How fast the ranks of a gang read a table that stays in its files: rows/s of 1, 2 and 4 together.

    python benchmarks/divided_reading.py RUN_DIR [--ranks 1 2 4] [--batch-size 1024]

RUN_DIR is a run with numeric features alone. Each rank is a process with one thread, and passes over one
epoch as a training does whose steps take no time. On a machine with fewer cores than ranks, the processor
seconds of the busiest rank tell how the work divides.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from pathlib import Path
from types import SimpleNamespace

import torch

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import RowGroups
from sparkgpu.core.table.schema import read_schema
from sparkgpu.neural.preprocess import QuantileNormal
from sparkgpu.neural.rows.stream import StreamedSource
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.objective import Objective


def read(run: Path, rank: int, ranks: int, batch_size: int, found: multiprocessing.Queue) -> None:
    torch.set_num_threads(1)
    paths = RunPaths(root=run)
    schema = read_schema(paths)
    rows = schema.splits["train"]
    block = next(RowGroups(paths, schema, "train").blocks())
    fitted = QuantileNormal.fit(torch.from_numpy(block.numeric_NF), generator=torch.Generator())
    source = StreamedSource(
        RowGroups(paths, schema, "train"), rows, transform=fitted, objective=Objective(task=schema.task),
        mean_weight=0.0, pool_rows=2**20, device=torch.device("cpu"),
    )  # fmt: skip
    place = SimpleNamespace(data_rank=rank, data_size=ranks)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    own = sum(
        len(batch)
        for batch, _ in source.batches(
            seed=7,
            epoch=1,
            batch_size=batch_size * ranks,
            first=0,
            part=lambda size: Strategy.part(place, size),
        )
    )
    found.put((own, time.perf_counter() - begin, time.process_time() - begin_cpu))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("run", type=Path)
    options.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 4])
    options.add_argument("--batch-size", type=int, default=1024)
    asked = options.parse_args()
    context = multiprocessing.get_context("spawn")
    for ranks in asked.ranks:
        found: multiprocessing.Queue = context.Queue()
        started = [
            context.Process(target=read, args=(asked.run, rank, ranks, asked.batch_size, found))
            for rank in range(ranks)
        ]
        for process in started:
            process.start()
        results = [found.get() for _ in started]
        for process in started:
            process.join()
        rows = sum(own for own, _, _ in results)
        longest_s, most_cpu_s = max(s for _, s, _ in results), max(s for _, _, s in results)
        print(
            f"{ranks} ranks: {rows:,} rows once in {longest_s:.1f} s, {rows / longest_s:,.0f} rows/s; the "
            f"busiest took {most_cpu_s:.1f} s of a core: {rows / most_cpu_s:,.0f} rows/s with a core each",
            flush=True,
        )


if __name__ == "__main__":
    main()
