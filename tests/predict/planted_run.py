"""A finished run of tiny real models, trained here without a JVM, on a table with known relations.

`shared` decides for both models. `product` is seen by neither alone. `town` is a category with its mean
target, `when` a timestamp in two parts. `noise` is nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from made_table import feature, made_rows, write_made_results, write_splits
from numpy.typing import NDArray

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import Feature, TableSchema
from sparkgpu.runs.evaluate import evaluate
from sparkgpu.trials.engine import Platform, Trial, make_engine

TOWNS = ("Aba", "Bonn", "Cali")
_LANE = LanePlan(
    index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=1, tree_threads=1,
    neural_threads=1, heap_bytes=1, port_base=1,
)  # fmt: skip
_OPTIONS = {
    "trees": {"engine": "xgboost", "ntrees": 30, "learn_rate": 0.2},
    "neural": {"architecture": "mlp", "hidden": [32], "epochs": 12, "learning_rate": 0.01},
}


def planted_run(
    root: Path,
    task: str = "binary",
    *,
    rows: int = 2_500,
    noises: int = 1,
    num_classes: int = 3,
    weighted: bool = False,
    seeds: int = 1,
    models: tuple[tuple[str, str], ...] = (("trees", "xgboost"), ("neural", "torch")),
) -> RunPaths:
    """A run directory with a table, trained models and ``metrics.json``."""
    paths = RunPaths(root=root)
    schema = _write_table(paths, task, rows, noises, num_classes, weighted)
    write_json(paths.schema, schema)
    config = config_io.load(options=_OPTIONS)
    resolved = resolve(
        config, preset="fast", strategy="single", size=TableSize.of(schema), device="cpu",
        tree_device=lambda engine: "cpu",
    )  # fmt: skip
    specs = tuple(
        TrialSpec(
            name=f"{model}-s{seed}", model=model, engine=engine, seed=seed, fold=None, lane=0, gang=(0,)
        )
        for model, engine in models
        for seed in range(7, 7 + seeds)
    )
    events = EventWriter(paths.root / "events.jsonl", paths.root / "phases.json")
    for spec in specs:
        parameters: Any = resolved.neural if spec.engine == "torch" else resolved.trees
        trial: Trial[Any] = Trial(
            spec=spec, parameters=parameters, schema=schema, run=paths, lane=_LANE, events=events,
            scratch=paths.root,
        )  # fmt: skip
        record = make_engine(spec.engine, Platform()).run(trial)
        write_json(paths.trial(spec.name).fit, record)
        write_text(paths.trial(spec.name).done, "")
    events.close()
    plan = Plan(preset="fast", lanes=(_LANE,), trials=specs, reasons={})
    write_json(paths.plan, plan)
    found = evaluate(paths, plan, schema, {}, 7, {})
    write_made_results(paths, schema, models=found.models, trials=found.trials, comparison=found.comparison)
    return paths


def _write_table(
    paths: RunPaths, task: str, rows: int, noises: int, num_classes: int, weighted: bool
) -> TableSchema:
    random = np.random.default_rng(5)
    shared_N, day_N, hour_N = (random.normal(size=rows) for _ in range(3))
    town_N = random.integers(0, len(TOWNS), rows)
    signal_N = 2 * shared_N + (town_N == 1) + hour_N + 0.3 * random.normal(size=rows)
    label_N: NDArray[Any] = signal_N
    classes: tuple[str, ...] = ()
    if task != "regression":
        classes = tuple(f"class {code}" for code in range(2 if task == "binary" else num_classes))
        edges = np.quantile(signal_N, np.linspace(0, 1, len(classes) + 1)[1:-1])
        label_N = np.searchsorted(edges, signal_N).astype(np.int32)
    weight_N = random.integers(0, 3, rows) if weighted else None
    mean_T = np.array([float(label_N[town_N == code].mean()) for code in range(len(TOWNS))])
    columns: dict[str, Any] = {
        "shared": shared_N, "town": np.array(TOWNS)[town_N], "town_mean": mean_T[town_N],
        "when_day": day_N, "when_hour": hour_N,
    }  # fmt: skip
    columns |= {f"noise{number or ''}": random.normal(size=rows) for number in range(noises)}
    features = (
        feature("shared"), feature("town", *TOWNS),
        Feature(name="town_mean", source="town", kind="numeric", pipeline="m", part="mean y",
                means_of="town"),
        Feature(name="when_day", source="when", kind="numeric", pipeline="d", part="day"),
        Feature(name="when_hour", source="when", kind="numeric", pipeline="h", part="hour"),
        *(feature(name) for name in columns if name.startswith("noise")),
    )  # fmt: skip
    split_N = np.array(["train", "train", "train", "valid", "test"])[np.arange(rows) % 5]
    write_splits(paths, made_rows(features, columns, label_N, weight_N=weight_N), split_N)
    return TableSchema.model_validate(
        {
            "source": "planted", "target": "y", "task": task, "classes": classes,
            "features": features,
            "weighted": weighted, "weight": "w" if weighted else None, "rows": rows,
            "splits": {split: int((split_N == split).sum()) for split in ("train", "valid", "test")},
            "fingerprint": "",
        }
    )  # fmt: skip
