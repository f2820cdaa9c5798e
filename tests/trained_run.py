"""A finished run of tiny models of any engines, trained in this process on columns of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from made_table import write_made_results

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import Task, read_schema
from sparkgpu.core.table.source import find_source
from sparkgpu.prepare.local_rows import LocalRows
from sparkgpu.prepare.prepare import find_out, write_by_arrow
from sparkgpu.runs.evaluate import evaluate
from sparkgpu.trials.engine import Platform, Trial, make_engine
from sparkgpu.trials.loop import run_trials

LANE = LanePlan(
    index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=1, tree_threads=1,
    neural_threads=1, heap_bytes=1, port_base=1,
)  # fmt: skip


def people(rows: int, seed: int, task: Task) -> pd.DataFrame:
    """Numbers, whole numbers, booleans, dates, words, categories of numbers, many levels; gaps in all."""
    drawn = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "body mass [g]": drawn.normal(4000, 800, rows),
            "legs": drawn.integers(0, 90, rows),
            "member": drawn.random(rows) < 0.5,
            "island": drawn.choice(["Torgersen", "Biscoe", "Dream", "Anvers"], rows, p=[0.4, 0.3, 0.2, 0.1]),
            "zone": drawn.integers(1, 4, rows),
            "street": [f"s{number:.0f}" for number in 900 * drawn.random(rows) ** 3],
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(drawn.integers(0, 17_000, rows), unit="h"),
        }
    )
    signal = frame["body mass [g]"] / 800 + 2 * (frame["island"] == "Dream") + (frame["since"].dt.month > 6)
    signal += 3 * (frame["street"].str.len() == 2) + frame["member"] + 0.7 * drawn.normal(size=rows)
    for place, name in enumerate(frame.columns):
        frame[name] = frame[name].astype(object).where(drawn.random(rows) > 0.02 * place)
    frame = frame.infer_objects()
    if task == "regression":
        return frame.assign(y=signal)
    edges = [6.5] if task == "binary" else [5.5, 7.5]
    return frame.assign(y=[f"class {code}" for code in np.digitize(signal, edges)])


def prepared_run(root: Path, task: Task, rows: int = 600, *, amounts: bool = False) -> RunPaths:
    """A run with its table, and beside it ``people.parquet``, of which it was made.

    Streets have mean targets: with three classes all of them keep a level, else `most` do. The numbers of a
    regression may be `amounts` with a long tail.
    """
    most = 1_000 if task == "multiclass" else 12
    paths = RunPaths(root=root)
    root.mkdir(parents=True)
    frame = people(rows, 1, task)
    frame = frame.assign(y=1e5 * np.exp(frame["y"] / 2)) if amounts else frame
    frame.to_parquet(root / "people.parquet")
    options = {
        "data.source": str(root / "people.parquet"), "data.target": "y", "data.max_categories": most,
        "data.roles": {"zone": "categorical", "street": "categorical", "island": "categorical"},
    }  # fmt: skip
    if amounts:
        options["neural.distribution"] = "lognormal"
    config, source = config_io.load(options=options), find_source(options["data.source"])
    events = EventWriter(root / "events.jsonl", root / "phases.json")
    made = LocalRows(source, source)
    found = find_out(made, source=source, config=config, paths=paths, events=events)
    write_by_arrow(made, found, paths=paths, events=events)
    events.close()
    return paths


def train(
    paths: RunPaths,
    models: Mapping[str, tuple[str, Mapping[str, Any]]],
    trained: Callable[[TrialSpec], FitRecord] | None = None,
    coverage: float | None = None,
) -> None:
    """Train `models`, by name an engine with its keys of a run, or take those that `trained` finds.

    Probabilities are calibrated. With `coverage` the models have intervals or sets.
    """
    schema, events = read_schema(paths), EventWriter(paths.root / "trials.jsonl", paths.root / "phases.json")
    specs = {
        f"{name}-s7": TrialSpec(
            name=f"{name}-s7", model=name, engine=engine, seed=7, fold=None, lane=0, gang=(0,)
        )
        for name, (engine, _) in models.items()
    }

    def run_trial(spec: TrialSpec) -> Any:
        keys = {"trees.engine": "xgboost", **dict(models[spec.model][1])}
        resolved = resolve(
            config_io.load(options=keys), preset="fast", strategy="single", size=TableSize.of(schema),
            device="cpu", tree_device=lambda engine: "cpu",
        )  # fmt: skip
        parameters: Any = resolved.neural if spec.engine == "torch" else resolved.trees
        trial: Trial[Any] = Trial(
            spec=spec, parameters=parameters, schema=schema, run=paths, lane=LANE, events=events,
            scratch=paths.root,
        )  # fmt: skip
        return make_engine(spec.engine, Platform()).run(trial)

    plan = Plan(preset="fast", lanes=(LANE,), trials=tuple(specs.values()), reasons={})
    write_json(paths.plan, plan)
    run = trained or run_trial
    assert run_trials(plan, plan.trials, paths, events, run, calibrates=lambda task: task != "regression")
    events.close()
    found = evaluate(paths, plan, schema, {}, 7, {}, coverage)
    write_made_results(paths, schema, models=found.models, trials=found.trials, comparison=found.comparison)
