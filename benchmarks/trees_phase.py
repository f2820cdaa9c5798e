"""How long H2O's trees take in a run, from the prepared table to predictions, against the package xgboost.

    python benchmarks/trees_phase.py FOLDER [--rows 1000000] [--columns 30] [--trees 100] [--classes 2]

Makes a table of numbers in FOLDER as `sparkgpu` prepares it. Then in turn, with the same rows, parameters
and threads: the engine `h2o-xgboost` in an H2O that stands, by its phases, and the package xgboost from
reading the same files to the same predictions. Prints seconds, processor seconds and the ratio of the whole.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import xgboost

from sparkgpu.core.config.parameters import TreesParameters
from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import Feature, SplitName, TableSchema, read_schema
from sparkgpu.core.table.writer import SplitFile, table_rows
from sparkgpu.h2o.context import start_h2o, stopping
from sparkgpu.h2o.session import spark_session
from sparkgpu.trials.engine import Platform, TreesTrial, Trial

_SEED = 7
_SETTINGS: dict[str, Any] = {
    "engine": "h2o-xgboost", "grow_policy": "depthwise", "max_depth": 6, "max_leaves": 0,
    "categorical_encoding": "sort_by_response", "learn_rate": 0.1, "min_rows": 1.0, "sample_rate": 1.0,
    "col_sample_rate": 1.0, "col_sample_rate_per_tree": 1.0, "reg_lambda": 1.0, "reg_alpha": 0.0,
    "max_bins": 256, "tree_method": "hist", "early_stopping_rounds": 0, "score_tree_interval": 10,
}  # fmt: skip
_OBJECTIVES = {"binary": "binary:logistic", "multiclass": "multi:softprob"}
_METRICS = {"binary": "logloss", "multiclass": "mlogloss"}


def prepared(folder: Path, rows: int, columns: int, classes: int) -> RunPaths:
    """A table in the form of a run's: 70 % of the rows to train on, 15 % each for the others."""
    paths = RunPaths(root=folder)
    if paths.schema.exists():
        return paths
    random = np.random.default_rng(_SEED)
    names = [f"x{column}" for column in range(columns)]
    features = tuple(Feature(name=name, source=name, kind="numeric", pipeline=name) for name in names)
    counts = {"train": rows * 70 // 100, "valid": rows * 15 // 100, "test": rows * 15 // 100}
    begin = 0
    for split, count in counts.items():
        value_NF = random.standard_normal((count, columns), dtype=np.float32)
        signal_N = value_NF[:, 0] * value_NF[:, 1] + np.sin(3 * value_NF[:, 2]) + value_NF[:, 3:6].sum(axis=1)
        signal_N += random.standard_normal(count)
        label_N = np.digitize(signal_N, np.quantile(signal_N, np.arange(1, classes) / classes))
        file = SplitFile(paths.split(split), "part-00000.parquet")
        file.add(table_rows(features, np.arange(begin, begin + count), label_N, None, None, value_NF))
        file.close()
        begin += count
    write_json(
        paths.schema,
        TableSchema(
            source="made", target="y", task="binary" if classes == 2 else "multiclass",
            classes=tuple(str(code) for code in range(classes)),
            features=features,
            rows=sum(counts.values()), splits=counts, fingerprint="",
        ),
    )  # fmt: skip
    return paths


def trial_of(
    paths: RunPaths, schema: TableSchema, port: int, scratch: Path, trees: int, turn: int
) -> TreesTrial:
    """A trial as a lane's worker hands it to the engine, with a folder of its own."""
    threads = len(os.sched_getaffinity(0))
    name = f"trees-{turn}"
    (own := scratch / name).mkdir()
    shutil.rmtree(paths.trial(name).root, ignore_errors=True)
    paths.lane(turn).phases("trees").unlink(missing_ok=True)
    return Trial(
        spec=TrialSpec(
            name=name, model="trees", engine="h2o-xgboost", seed=_SEED, fold=None, lane=0, gang=(0,)
        ),
        parameters=TreesParameters.model_validate({**_SETTINGS, "ntrees": trees}),
        schema=schema,
        run=paths,
        lane=LanePlan(
            index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=threads,
            tree_threads=threads, neural_threads=threads, heap_bytes=2**32, port_base=port,
        ),
        events=EventWriter(paths.lane(turn).events("trees"), paths.lane(turn).phases("trees")),
        scratch=own,
    )  # fmt: skip


def by_xgboost(paths: RunPaths, schema: TableSchema, trees: int) -> dict[str, float]:
    """Seconds of the package xgboost, from the table's files to the predictions of valid and test."""
    laps = [time.perf_counter()]
    splits: tuple[SplitName, ...] = ("train", "valid", "test")
    rows = {split: read_rows(paths, schema, split) for split in splits}
    data = {
        split: xgboost.DMatrix(rows[split].numeric_NF, rows[split].label_N) for split in ("train", "valid")
    }
    laps.append(time.perf_counter())
    settings: dict[str, Any] = {
        "objective": _OBJECTIVES[schema.task], "eval_metric": _METRICS[schema.task], "tree_method": "hist",
        "eta": _SETTINGS["learn_rate"], "max_depth": _SETTINGS["max_depth"], "lambda": 1.0, "seed": _SEED,
        "max_bin": _SETTINGS["max_bins"], "nthread": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    if schema.task == "multiclass":
        settings["num_class"] = len(schema.classes)
    model = xgboost.train(
        settings, data["train"], trees, evals=[(data["train"], "train"), (data["valid"], "valid")],
        verbose_eval=False,
    )  # fmt: skip
    laps.append(time.perf_counter())
    for split in ("valid", "test"):
        model.inplace_predict(rows[split].numeric_NF)
    laps.append(time.perf_counter())
    return dict(zip(("reading", "training", "predicting"), np.diff(laps).tolist(), strict=True))


@contextmanager
def told(name: str, phases: dict[str, float]) -> Iterator[None]:
    """Print seconds and processor seconds of the block, the JVM's included; `phases` are filled inside it."""
    every = [psutil.Process(), *psutil.Process().children(recursive=True)]
    before, start = sum(_cpu_s(one) for one in every), time.perf_counter()
    yield
    whole, cpu_s = time.perf_counter() - start, sum(_cpu_s(one) for one in every) - before
    parts = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in phases.items())
    phases["whole"] = whole
    print(f"{name}: {whole:.2f} s ({cpu_s:.1f} processor s): {parts}", flush=True)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure both in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    for name, default in (("rows", 1_000_000), ("columns", 30), ("trees", 100), ("classes", 2), ("times", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    name = f"{asked.rows}x{asked.columns}-{asked.classes}"
    paths = prepared(asked.folder / name, asked.rows, asked.columns, asked.classes)
    schema = read_schema(paths)
    threads = len(os.sched_getaffinity(0))
    ratios = []
    with (
        scratch_folder() as scratch,
        reserved_ports(1) as (port,),
        spark_session(
            name="phase", threads=threads, heap_bytes=2**32, scratch=scratch, port_base=port
        ) as session,
        stopping(start_h2o(session, name="phase", scratch=scratch, port_base=port, threads=threads)),
    ):
        import h2o

        from sparkgpu.h2o.engine import H2OXGBoost

        h2o.no_progress()
        for turn in range(asked.times):
            trial = trial_of(paths, schema, port, scratch, asked.trees, turn)
            ours: dict[str, float] = {}
            with told("h2o-xgboost", ours):
                H2OXGBoost(Platform(java=session._jvm)).run(trial)
                ours |= json.loads(paths.lane(turn).phases("trees").read_text(encoding="utf-8"))
            theirs: dict[str, float] = {}
            with told("xgboost    ", theirs):
                theirs |= by_xgboost(paths, schema, asked.trees)
            ratios.append(ours["whole"] / theirs["whole"])
    print("ratios:", ", ".join(f"{ratio:.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
