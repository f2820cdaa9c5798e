"""Times `sparkgpu run` against the tutorial form, in turn, and prints the ratio and both sets of metrics.

    python benchmarks/end_to_end.py TABLE.parquet TARGET [--runs 3] [--baseline SCRIPT.py]

Both train the same trees (200 of depth 6 at 0.1) and the same network (MLP 256-256, 10 epochs, batches of
1024) on the same number of rows. Each run is a whole process, from its start to its last file. The trees use
H2O's defaults as the tutorial does (all rows, all columns, min_rows 1, reg_lambda 1), not sparkgpu's own.
The tutorial explains nothing, so the page of `sparkgpu run` is the short one.
Wall time is measured from outside, in the order A B A B, so a machine that slows down slows both. Quote the
median of the ratios. `--baseline` names another script with the command line of `benchmarks/tutorial.py`
(``TABLE TARGET --out FILE``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sparkgpu.core.rundir.metrics_json import Results, read_results
from sparkgpu.core.rundir.paths import RunPaths

SAME_WORK = (
    "trees.ntrees=200", "trees.max_depth=6", "trees.learn_rate=0.1", "trees.early_stopping_rounds=0",
    "trees.sample_rate=1.0", "trees.col_sample_rate=1.0", "trees.min_rows=1.0", "trees.reg_lambda=1.0",
    "neural.architecture=mlp", "neural.hidden=[256,256]", "neural.epochs=10",
    "neural.batch_size=1024", "neural.patience=0", "neural.dropout=0.0",
    "report.level=short",
)  # fmt: skip


def timed(command: list[str], log: Path) -> float:
    """Wall seconds of a whole command. It runs in the folder of `log`, so stray files land there."""
    start = time.perf_counter()
    with log.open("ab") as file:
        subprocess.run(
            command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=log.parent, check=True
        )
    return time.perf_counter() - start


def ours(options: argparse.Namespace, folder: Path) -> tuple[float, Results]:
    """One `sparkgpu run`: wall seconds and what it found."""
    out = folder / f"run-{time.time_ns()}"
    command = [
        sys.executable, "-m", "sparkgpu", "run", str(options.table.resolve()), "--target", options.target,
        "--out", str(out), "--quiet",
    ]  # fmt: skip
    for text in SAME_WORK:
        command += ["--set", text]
    wall = timed(command, folder / "sparkgpu.log")
    return wall, read_results(RunPaths(root=out))


def theirs(options: argparse.Namespace, folder: Path) -> tuple[float, dict[str, Any]]:
    """One run of the tutorial form."""
    out = folder / f"tutorial-{time.time_ns()}.json"
    command = [
        sys.executable, str(options.baseline.resolve()), str(options.table.resolve()), options.target,
        "--out", str(out),
    ]  # fmt: skip
    wall = timed(command, folder / "tutorial.log")
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return wall, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("target")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--baseline", type=Path, default=Path(__file__).with_name("tutorial.py"))
    options = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours(options, folder)  # not counted: file caches, compiled Python
        for number in range(1, options.runs + 1):
            load = os.getloadavg()[0]
            our_wall, results = ours(options, folder)
            their_wall, tutorial = theirs(options, folder)
            ratios.append(our_wall / their_wall)
            peak = results.run.peak_rss_bytes / 2**30
            print(
                f"{number}: sparkgpu {our_wall:.1f} s ({peak:.2f} GiB in all processes), "
                f"tutorial {their_wall:.1f} s, ratio {ratios[-1]:.3f}; load {load:.2f}",
                flush=True,
            )
    print(
        f"ratio: median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f} "
        f"in {len(ratios)} pairs"
    )
    for model in results.models:
        print(f"sparkgpu {model.name}: {_short(model.metrics.test)}")
    for model, found in tutorial["test"].items():
        print(f"tutorial {model}: {_short(found)}")
    for place, phases in results.phases_s.items():
        print(f"{place}: " + ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in phases.items()))
    print(
        "tutorial: " + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in tutorial["seconds"].items())
    )


def _short(metrics: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items() if value is not None)


if __name__ == "__main__":
    main()
