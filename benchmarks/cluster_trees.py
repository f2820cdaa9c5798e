"""Trees on a Spark cluster against those of a lane, table by table, and with an executor that is killed.

    python benchmarks/cluster_trees.py DATA_FOLDER [--tables adult name:target ...] [--ways lane:xgboost ...]
                                       [--starts 3] [--kill] [--executors 2] [--memory 2g] [--set KEY=VALUE]
                                       [--folder DIR]

A way is a place and an engine: ``lane:h2o-xgboost`` or ``cluster:xgboost``. The cluster is that of the tests:
a standalone master and workers of one core each on this machine. Each start is one `sparkgpu run` of the
trees alone; its line is printed as JSON, and its folder stays in `--folder`. With `--kill` one executor and
its worker are killed as soon as trees are reported, and the worker is then started anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from against import TARGETS
from standalone import Cluster, spark_environment, standalone

from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths

_TABLES = {**TARGETS, "penguins": "species"}
_WAYS = ("lane:h2o-xgboost", "lane:xgboost", "cluster:h2o-xgboost", "cluster:xgboost")
_WITHIN_S = 1500.0


def run(table: Path, target: str, engine: str, cluster: Cluster | None, out: Path, options: Any) -> None:
    """One start, and its line."""
    settings = ['models=["trees"]', f"trees.engine={engine}", 'report.level="short"', *options.set]
    if cluster is None:
        where = ["--cpu-lanes", "1"]
    else:
        where = []
        settings += [
            f"cluster.master={cluster.url}", f"cluster.executors={options.executors}",
            f"cluster.spark.executor.memory={options.memory}",
        ]  # fmt: skip
    command = [
        sys.executable, "-m", "sparkgpu", "run", str(table), "--target", target, *where, "--out", str(out),
        *(word for setting in settings for word in ("--set", setting)),
    ]  # fmt: skip
    began, killed = time.perf_counter(), False
    with out.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=spark_environment())
    try:
        events = EventReader(RunPaths(root=out).lane(0).events("trees"))
        while process.poll() is None and time.perf_counter() - began < _WITHIN_S:
            time.sleep(0.2)
            grows = any(event.kind == "progress" for event in events.new())
            if options.kill and cluster is not None and grows and not killed:
                cluster.kill_worker(0)
                killed = True
    finally:
        hung = process.poll() is None
        process.terminate()
        status = process.wait()
    found: dict[str, Any] = {
        "table": table.stem, "engine": engine, "executors": options.executors if cluster else 0,
        "status": "hung" if hung else status, "killed": killed,
        "wall_s": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    paths = RunPaths(root=out)
    if paths.metrics.exists():
        results = read_results(paths)
        (trial,) = results.trials
        trees = next(model for model in results.models if model.name == "trees")
        if trial.status == "done":
            facts = {"fit_s": trial.fit_s, "trees": trial.best_iteration, "notes": trial.notes}
            found |= {"metrics": trees.metrics.test, **facts}
        else:
            found["error"] = trial.error
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tables", nargs="*", default=list(_TABLES))
    parser.add_argument("--ways", nargs="*", default=_WAYS)
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="cluster-trees-"))
    folder.mkdir(parents=True, exist_ok=True)
    for named in options.tables:
        name, _, target = named.partition(":")
        for way in options.ways:
            place, _, engine = way.partition(":")
            for _ in range(options.starts):
                with ExitStack() as stack:
                    own = folder / f"{name}-{place}-{engine}-{time.time():.0f}"
                    cluster = None
                    if place == "cluster":
                        (at := own.with_suffix(".cluster")).mkdir()
                        cluster = stack.enter_context(
                            standalone(at, workers=options.executors, memory=options.memory)
                        )
                    table = options.data / f"{name}.parquet"
                    run(table, target or _TABLES[name], engine, cluster, own, options)


if __name__ == "__main__":
    main()
