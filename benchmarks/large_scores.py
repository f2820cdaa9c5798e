"""What scoring many rows takes: made-up labels and predictions of two models, then the parent's own scorer.

    python benchmarks/large_scores.py FOLDER 100_000_000 [--task binary] [--valid 1_000_000] [--exact]

It prints the seconds (those of a processor tell more on a busy machine), the peak of memory, and the figures;
with `--exact` what the scorer of small splits finds, in 250 bytes a row.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.host.processes import peak_resident_bytes
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import Feature, TableSchema
from sparkgpu.runs import evaluate as evaluation

_STEP = 2_000_000


def _made(task: str, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Labels, and what two models predict: (N, C) probabilities, or (N, 1) values."""
    classes = {"binary": 2, "multiclass": 5}.get(task, 1)
    truth_NC = rng.normal(size=(rows, classes))
    noisy = [truth_NC + scale * rng.normal(size=truth_NC.shape) for scale in (0.6, 0.7)]
    if task == "regression":
        return truth_NC[:, 0] + rng.normal(size=rows), noisy
    label_N = (truth_NC + rng.gumbel(size=truth_NC.shape)).argmax(axis=1).astype(np.int32)
    shares = [np.exp(0.8 * one) for one in noisy]
    return label_N, [one / one.sum(axis=1, keepdims=True) for one in shares]


def make(paths: RunPaths, task: str, rows: dict[str, int]) -> tuple[Plan, TableSchema]:
    classes = {"binary": ("no", "yes"), "multiclass": tuple("abcde")}.get(task, ())
    schema = TableSchema(
        source="made", target="y", task=task, classes=classes, rows=sum(rows.values()), splits=rows,
        fingerprint="", features=(Feature(name="x", source="x", kind="numeric", pipeline="x"),),
    )  # fmt: skip
    lane = LanePlan(
        index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=1, tree_threads=1,
        neural_threads=1,
    )  # fmt: skip
    trials = tuple(
        TrialSpec(name=name, model=name, engine=engine, seed=7, fold=None, lane=0, gang=(0,))
        for name, engine in (("trees", "xgboost"), ("neural", "torch"))
    )
    plan = Plan(preset="fast", lanes=(lane,), trials=trials, reasons={})
    if paths.schema.exists():
        return plan, schema
    rng, first = np.random.default_rng(1), 0
    columns = [f"probability_{code}" for code in range(len(classes))] or ["prediction"]
    files: dict[str, pq.ParquetWriter] = {}

    def write(file: Path, found: pa.Table, **how: object) -> None:
        if file not in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            files[file] = pq.ParquetWriter(file, found.schema, **how)
        files[file].write_table(found, row_group_size=2**17)

    for split, count in rows.items():
        for start in range(0, count, _STEP):
            size = min(_STEP, count - start)
            row_id_N = np.arange(first, first + size)
            label_N, found = _made(task, rng, size)
            write(
                paths.split(split) / "part-00000.parquet",
                pa.table({"row_id": row_id_N, "label": label_N, "x": np.zeros(size, np.float32)}),
                use_dictionary=False,
            )
            name_N = pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), [split])
            for trial, values_NC in zip(trials, found, strict=True):
                own = dict(zip(columns, np.ascontiguousarray(values_NC.T), strict=True))
                own_table = pa.table({"row_id": row_id_N, "split": name_N, **own})
                write(paths.trial(trial.name).predictions, own_table, use_dictionary=["split"])
            first += size
    for writer in files.values():
        writer.close()
    for trial in trials:
        fit = FitRecord(
            trial=trial.name, engine=trial.engine, fit_s=1.0, predict_s=1.0, train_rows=1,
            train_rows_per_s=1.0, peak_host_bytes=1, best_iteration=1,
        )  # fmt: skip
        write_json(paths.trial(trial.name).fit, fit)
        write_text(paths.trial(trial.name).done, "")
    write_json(paths.schema, schema)
    return plan, schema


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("rows", type=int)
    options.add_argument("--valid", type=int, default=1_000_000)
    options.add_argument("--task", default="binary", choices=["binary", "multiclass", "regression"])
    options.add_argument("--exact", action="store_true")
    asked = options.parse_args()
    paths = RunPaths(root=asked.folder)
    plan, schema = make(paths, asked.task, {"valid": asked.valid, "test": asked.rows})
    if asked.exact:
        evaluation.MOST_VALUES = 2**40
    begin_s, begin_cpu_s, begin_bytes = time.perf_counter(), time.process_time(), peak_resident_bytes()
    found = evaluation.evaluate(paths, plan, schema, {}, 7, {})
    figures = {model.name: model.metrics.test for model in found.models}
    pairs = {f"{one.a} {one.b}": (one.difference, one.ci95) for one in found.comparison.pairs}
    print(json.dumps({"test": figures, "pairs": pairs}, indent=1))
    print(
        f"{time.perf_counter() - begin_s:.1f} s, of which a processor took "
        f"{time.process_time() - begin_cpu_s:.1f}, peak {peak_resident_bytes() / 2**30:.2f} GiB "
        f"({begin_bytes / 2**30:.2f} before)"
    )


if __name__ == "__main__":
    main()
