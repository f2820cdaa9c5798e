"""Where the time and the memory of a large table go: made-up tables, whole runs, every process watched.

    python benchmarks/large.py --rows 1e6 [--columns 30] [--files 200] [--kind parquet|csv] [--lanes 1]
                               [--set KEY=VALUE]... [--folder DIR] [--keep]

It writes a table of floats with a target (two classes) that some of the columns decide, in one file or in
many whose names are in another order than their sizes, and runs `sparkgpu run` on it: 50 trees of depth 6,
one epoch of an MLP 128-128, without the explanations. It prints the seconds of each phase and per million,
and for each process its greatest memory, as RSS and as PSS (a page that several processes share counts once,
divided among them). The peak of all is the greatest sum at one moment, and stands beside the size of the
table's numbers in float32. It needs Linux, for PSS.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

MODELS = (
    "trees.ntrees=50", "trees.max_depth=6", "trees.early_stopping_rounds=0", "neural.architecture=mlp",
    "neural.hidden=[128,128]", "neural.epochs=1", "neural.batch_size=1024", "neural.patience=0",
    'report.level="short"',
)  # fmt: skip
_BLOCK_ROWS = 500_000
_LOOK_EVERY_S = 1.0


def blocks(rows: int, columns: int) -> Iterator[pa.Table]:
    """The rows of a table, some at a time: normal numbers, and a target that the first four decide."""
    for number, begin in enumerate(range(0, rows, _BLOCK_ROWS)):
        random = np.random.default_rng(number)
        size = min(_BLOCK_ROWS, rows - begin)
        x_NF = random.standard_normal((size, columns), dtype=np.float32)
        logit_N = x_NF[:, 0] * x_NF[:, 1] + np.sin(3 * x_NF[:, 2]) + x_NF[:, 3]
        label_N = (random.random(size) < 1 / (1 + np.exp(-2 * logit_N))).astype(np.int32)
        named = {f"x{index}": np.ascontiguousarray(x_NF[:, index]) for index in range(columns)}
        yield pa.table({**named, "y": label_N})


def make_table(folder: Path, rows: int, columns: int, files: int, kind: str) -> Path:
    """Write the table, if it is not there, to one file or a folder of `files`. Returns its path."""
    name = f"rows-{rows}-{columns}"
    path = folder / (f"{name}-{kind}-in-{files}" if files > 1 else f"{name}.{kind}")
    if path.exists():
        return path
    made = path.with_name(f".{path.name}")
    shutil.rmtree(made, ignore_errors=True)
    if files == 1:
        whole = blocks(rows, columns)
        first = next(whole)
        writer = (
            pq.ParquetWriter(made, first.schema, use_dictionary=False)
            if kind == "parquet"
            else pyarrow.csv.CSVWriter(made, first.schema)
        )
        with writer:
            writer.write_table(first)
            for block in whole:
                writer.write_table(block)
    else:
        made.mkdir(parents=True)
        random = np.random.default_rng(0)
        share_F = random.uniform(0.5, 1.5, files)
        ends_F = np.round(np.cumsum(share_F) / share_F.sum() * rows).astype(int)
        table = pa.concat_tables(blocks(rows, columns))
        for index, number in enumerate(random.permutation(files)):
            begin = 0 if number == 0 else int(ends_F[number - 1])
            part = table.slice(begin, int(ends_F[number]) - begin)
            target = made / f"part-{index:05d}.{kind}"
            if kind == "parquet":
                pq.write_table(part, target, use_dictionary=False)
            else:
                pyarrow.csv.write_csv(part, target)
    made.rename(path)
    return path


class Watch(threading.Thread):
    """The greatest memory of each kind of process under `root`, and the greatest sum at one moment."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(root)
        self._ended = threading.Event()
        self.rss: dict[str, int] = {}
        self.pss: dict[str, int] = {}
        self.at_peak: dict[str, int] = {}
        self.peak_at_s = 0.0
        self._cpu_s: dict[int, float] = {}

    def run(self) -> None:
        start = time.monotonic()
        while not self._ended.wait(_LOOK_EVERY_S):
            now: dict[str, int] = {}
            with suppress(psutil.Error):
                for process in (self._root, *self._root.children(recursive=True)):
                    with suppress(psutil.Error, OSError):
                        name, (rss, pss) = _name(process), _memory(process.pid)
                        times = process.cpu_times()
                        self._cpu_s[process.pid] = times.user + times.system
                        now[name] = now.get(name, 0) + pss
                        self.rss[name] = max(self.rss.get(name, 0), rss)
                        self.pss[name] = max(self.pss.get(name, 0), pss)
            if sum(now.values()) > sum(self.at_peak.values()):
                self.at_peak, self.peak_at_s = now, time.monotonic() - start

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all of them, to within a second of the end of each."""
        return sum(self._cpu_s.values())

    def end(self) -> None:
        self._ended.set()
        self.join()


def _name(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    if "--lane" in process.cmdline():
        words = process.cmdline()
        return f"lane {words[words.index('--lane') + 1]} {words[words.index('--branch') + 1]}"
    if "java" in process.name():
        parent = process.parent()
        return f"JVM of {_name(parent)}" if parent else "JVM"
    for known in ("pyspark.daemon", "sparkgpu.neural.ranks", "torchrun", "sparkgpu.predict.explain"):
        if known in line:
            return known
    return "sparkgpu run" if "sparkgpu run" in line else process.name()


def _memory(pid: int) -> tuple[int, int]:
    """RSS and PSS in bytes."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]:
        name, value, *_ = line.split()
        found[name.rstrip(":")] = int(value) * 1024
    return found["Rss"], found["Pss"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--kind", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "sparkgpu-large")
    parser.add_argument("--keep", action="store_true", help="leave the run directory")
    options = parser.parse_args()
    rows = int(options.rows)
    options.folder.mkdir(parents=True, exist_ok=True)
    table = make_table(options.folder, rows, options.columns, options.files, options.kind)
    out = options.folder / f"run-{table.name}-{time.time_ns()}"
    command = [
        sys.executable, "-m", "sparkgpu", "run", str(table), "--target", "y", "--out", str(out), "--quiet",
        "--cpu-lanes", str(options.lanes),
    ]  # fmt: skip
    for text in (*MODELS, *options.set):
        command += ["--set", text]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())  # `timeout` then shows how far it came
    watch = Watch(process.pid)
    watch.start()
    status = process.wait()
    wall_s = time.perf_counter() - start
    watch.end()
    print(f"\n{table.name}: {rows:,} rows x {options.columns}, {options.lanes} lane(s), exit {status}")
    print(f"wall {wall_s:.1f} s, {wall_s / rows * 1e6:.2f} s per million rows; processor {watch.cpu_s:.1f} s")
    for file in sorted(out.glob("lanes/*/*phases.json")):
        phases = json.loads(file.read_text(encoding="utf-8"))
        text = ", ".join(f"{name} {seconds:.1f}" for name, seconds in phases.items() if seconds >= 0.05)
        print(f"{file.parent.name} {file.name.partition('.')[0]}: {text}")
    numbers = rows * options.columns * 4
    print(f"GiB: {'process':<24} {'RSS':>6} {'PSS':>6} {'at the peak':>12}")
    for name in sorted(watch.pss):
        found = (watch.rss[name], watch.pss[name], watch.at_peak.get(name, 0))
        print(f"     {name:<24} " + " ".join(f"{value / 2**30:>6.2f}" for value in found))
    peak = sum(watch.at_peak.values())
    print(
        f"peak of all {peak / 2**30:.2f} GiB after {watch.peak_at_s:.0f} s, "
        f"{peak / numbers:.2f} times the float32 table of {numbers / 2**30:.2f} GiB"
    )
    on_disk = sum(file.stat().st_size for file in out.glob("table/**/*.parquet"))
    print(f"table/ {on_disk / 2**30:.2f} GiB; {json.dumps(_metrics(out))}")
    if not options.keep:
        shutil.rmtree(out, ignore_errors=True)
    sys.exit(status)


def _metrics(out: Path) -> dict[str, object]:
    with suppress(OSError, KeyError):
        found = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
        return {model["name"]: model["metrics"]["test"].get("log_loss") for model in found["models"]}
    return {}


if __name__ == "__main__":
    main()
