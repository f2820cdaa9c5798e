"""What the processor's side of a lane costs: real lanes whose devices' work is a sleep.

    python benchmarks/lanes.py [--lanes 1,2,4] [--rows 1e6] [--columns 30] [--device-s 20] [--cores 0,1]

Each lane is that of a run on GPUs: its own Spark and H2O, the table handed to H2O, a network's worker that
reads and prepares the rows, predictions written. The device's work alone is replaced: the trees are one stump
and a sleep of `--device-s` seconds (`benchmarks/sleeping.py`); the network is 8 units wide with few steps.
It prints for each number of lanes the wall time, what of it is not sleep, the processor seconds of all lanes
together and of one, the memory of a lane, and the size of the run directory. With `--cores` the run sees only
these cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from large import Watch, make_table

from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths

DEVICE_S = "SPARKGPU_BENCHMARK_DEVICE_S"
LANES = "SPARKGPU_BENCHMARK_LANES"
_SETTINGS = (
    "trees.engine=sleeping", "trees.ntrees=1", "trees.max_depth=1", "trees.early_stopping_rounds=0",
    "neural.architecture=mlp", "neural.hidden=[8]", "neural.epochs=1", "neural.batch_size=65536",
    "neural.patience=0", 'report.level="short"',
)  # fmt: skip


ENTRY = replace(ENGINES.find("h2o-xgboost"), name="sleeping", load="sleeping:Sleeping", fitted=None)


def install(folder: Path) -> None:
    """Fill a folder for PYTHONPATH with which sparkgpu finds the engine, as if a package had brought it.

    It also sees a core for each lane, and would refuse more lanes than cores.
    """
    about = folder / "sleeping-0.dist-info"
    about.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"import os\ncores = max(int(os.environ[{LANES!r}]), len(os.sched_getaffinity(0)))\n"
        "os.sched_getaffinity = lambda pid: set(range(cores))\n",
        encoding="utf-8",
    )
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sleeping\nVersion: 0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[sparkgpu.engines]\nsleeping = lanes:ENTRY\n", encoding="utf-8")


def run(table: Path, lanes: int, device_s: float, folder: Path) -> None:
    """One run, and its line."""
    out = folder / f"run-{lanes}"
    command = [
        sys.executable, "-m", "sparkgpu", "run", str(table), "--target", "y", "--out", str(out), "--quiet",
        "--cpu-lanes", str(lanes),
    ]  # fmt: skip
    for text in _SETTINGS:
        command += ["--set", text]
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent), str(folder), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(paths), DEVICE_S: str(device_s), LANES: str(lanes)}
    environment = {**os.environ, **own}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    watch = Watch(process.pid)
    watch.start()
    status = process.wait()
    wall_s = time.perf_counter() - start
    watch.end()
    if status:
        sys.exit(f"the run with {lanes} lanes ended with {status}; see {out}")
    trials = [trial for trial in read_results(RunPaths(root=out)).trials if trial.status == "done"]
    in_lanes = sum(size for name, size in watch.at_peak.items() if "lane" in name)
    on_all = sum(watch.at_peak.values())
    print(
        f"{lanes} lane(s): wall {wall_s:.1f} s, {wall_s - device_s:.1f} beside the device's; processor "
        f"{watch.cpu_s:.1f} s, {watch.cpu_s / lanes:.1f} a lane; peak of all {on_all / 2**30:.2f} GiB, "
        f"{in_lanes / lanes / 2**30:.2f} a lane; {len(trials)} trials",
        flush=True,
    )
    on_disk = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"    run directory {on_disk / 2**20:.0f} MiB")
    shutil.rmtree(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lanes", default="1,2,4")
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--device-s", type=float, default=20.0)
    parser.add_argument("--cores", help="the cores that the run may use, such as 0,1")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "sparkgpu-large")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    options.folder.mkdir(parents=True, exist_ok=True)
    table = make_table(options.folder, int(options.rows), options.columns, 1, "parquet")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        install(Path(folder))
        for lanes in options.lanes.split(","):
            run(table, int(lanes), options.device_s, Path(folder))


if __name__ == "__main__":
    main()
