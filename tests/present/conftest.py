"""Run directories as a run leaves them: real Parquet and JSON, small, without a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_table import feature, made_rows, write_part

from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.metrics_json import (
    DataInfo,
    DoneTrial,
    FailedTrial,
    Results,
    RunInfo,
    write_results,
)
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import HostRecord
from sparkgpu.core.table.schema import ROW_ID, DroppedColumn, Feature, TableSchema

CLASSES = {"binary": ("no", "yes"), "multiclass": ("ant", "bee", "cat"), "regression": ()}
NAMES = {
    "binary": ("roc_auc", "average_precision", "log_loss", "brier", "accuracy", "f1"),
    "multiclass": ("log_loss", "accuracy", "balanced_accuracy", "f1_macro"),
    "regression": ("rmse", "mae", "r2", "spearman"),
}


def make_run(
    root: Path,
    *,
    task: str = "binary",
    rows: int = 400,
    repeats: int = 2,
    folds: int | None = None,
    models: tuple[str, ...] = ("trees", "neural"),
    failed: tuple[str, ...] = (),
    classes: tuple[str, ...] | None = None,
    target: str = "late",
    weight: str | None = None,
    more_features: int = 0,
) -> RunPaths:
    """A run of `repeats` lanes; the trials in `failed` left only the reason of their failure.

    The table has two features, and `more_features` numbers.
    """
    paths = RunPaths(root=root)
    names = CLASSES[task] if classes is None else classes
    rng = np.random.default_rng(3)
    row_id_N = rng.permutation(rows).astype(np.int64)
    label_N = rng.normal(100.0, 30.0, rows) if task == "regression" else rng.integers(0, len(names), rows)
    more = [f"more_{number}" for number in range(more_features)]
    script = Feature(name="c", source="<script>", kind="categorical", pipeline="c", levels=("a", "b"))
    features = (feature("distance"), script, *map(feature, more))
    parts = []
    for part in np.array_split(np.arange(rows), 2):
        columns = {"distance": rng.normal(size=len(part)), "c": rng.choice(["a", "b"], len(part))}
        columns |= {name: rng.normal(size=len(part)) for name in more}
        weight_N = None if weight is None else row_id_N[part] % 3 / 2.0
        parts.append(made_rows(features, columns, label_N[part], row_id_N=row_id_N[part], weight_N=weight_N))
    whole = pa.concat_tables(parts).sort_by(ROW_ID)  # as the preparation writes them
    for half, part in enumerate(np.array_split(np.arange(rows), 2)):
        write_part(paths, "test", whole.take(part), half)
    schema = TableSchema.model_validate(
        {
            "source": "flights.parquet", "target": target, "task": task, "classes": names,
            "features": features,
            "dropped": [DroppedColumn(column="a|b[c] _d_", reason="one value in every row")],
            "notes": ["time_hour: expanded to hour and weekday"],
            "weighted": weight is not None, "weight": weight,
            "folds": folds, "rows": 3 * rows, "rows_refused": 12,
            "splits": {"train": rows, "valid": rows, "test": rows}, "fingerprint": "f00d",
        }
    )  # fmt: skip
    specs = [
        TrialSpec.model_validate(
            {
                "name": f"{model}-s{7 + repeat}" + (f"-f{fold}" if fold is not None else ""), "model": model,
                "engine": "torch" if model == "neural" else "h2o-xgboost", "seed": 7 + repeat, "fold": fold,
                "lane": repeat,
                "gang": (repeat,),
            }
        )
        for repeat in range(repeats)
        for fold in (range(folds) if folds else (None,))
        for model in ("trees", "neural")
    ]  # fmt: skip
    lanes = tuple(
        LanePlan(
            index=index, device="cpu", cuda_visible_devices="", device_name="CPU", threads=2,
                tree_threads=1,
            neural_threads=1, heap_bytes=2**31, port_base=54321 + 100 * index,
        )
        for index in range(repeats)
    )  # fmt: skip
    plan = Plan(
        preset="fast", lanes=lanes, trials=tuple(specs), reasons={"preset": "fast, the default on CPU"}
    )
    trials = [
        _trial(spec, failed=spec.name in failed or spec.model not in models, task=task) for spec in specs
    ]
    for trial in trials:
        if trial.status == "done":
            _write_trial(paths, trial.name, trial.model, task, row_id_N, label_N, len(names), rng)
    write_results(paths, _results(schema, trials))
    write_json(paths.plan, plan)
    write_json(paths.schema, schema)
    return paths


def _trial(spec: TrialSpec, *, failed: bool, task: str) -> DoneTrial | FailedTrial:
    about = {
        "name": spec.name, "model": spec.model, "engine": spec.engine, "seed": spec.seed, "fold": spec.fold,
        "lane": spec.lane, "devices": ("cpu",), "strategy": "single",
    }  # fmt: skip
    if failed:
        error = f"lane {spec.lane} ended: <b>out of memory</b>"
        return FailedTrial.model_validate({**about, "status": "failed", "error": error, "metrics": {}})
    values = dict.fromkeys(NAMES[task], 0.5 + (0.2 if spec.model == "trees" else 0.1))
    return DoneTrial.model_validate(
        {
            **about, "status": "done", "metrics": {"valid": values, "test": values}, "fit_s": 12.5,
            "predict_s": 0.31, "train_rows_per_s": 12345.6, "peak_host_bytes": 3 * 2**30,
            "peak_device_bytes": None, "best_iteration": 120, "native_parameters": {},
            "device_proof": {"tree_method": "hist"},
        }
    )  # fmt: skip


def _results(schema: TableSchema, trials: list[DoneTrial | FailedTrial]) -> Results:
    names = NAMES[schema.task]
    models: list[dict[str, Any]] = []
    for name in dict.fromkeys(trial.model for trial in trials):
        of_model = [trial for trial in trials if trial.model == name]
        done = [trial for trial in of_model if trial.status == "done"]
        std = dict.fromkeys(names, 0.00123) if len(done) > 1 else dict.fromkeys(names)
        models.append(
            {
                "name": name, "engine": of_model[0].engine, "status": "done" if done else "failed",
                "trials": [trial.name for trial in done], "metrics": done[0].metrics if done else {},
                "std": {"test": std if done else {}},
            }
        )  # fmt: skip
    comparison: dict[str, Any] = {"metric": names[0], "leader": None, "pairs": []}
    if all(model["status"] == "done" for model in models):
        values = dict.fromkeys(names, 0.71234)
        shares = {model["name"]: 0.25 / (len(models) - 1) for model in models} | {"trees": 0.75}
        models.append(
            {
                "name": "blend", "engine": "blend", "status": "done", "weights": shares,
                "trials": [trial.name for trial in trials if trial.status == "done"],
                "metrics": {"valid": values, "test": values}, "std": {"test": {}},
            }
        )  # fmt: skip
        pair = {"a": "trees", "b": "neural", "difference": 0.1, "ci95": [0.08, 0.12], "verdict": "a"}
        tie = {"a": "blend", "b": "trees", "difference": -0.001, "ci95": [-0.003, 0.001], "verdict": "tie"}
        sentence = "trees ahead of neural by 0.100 ROC AUC (95 % interval 0.080 to 0.120)"
        comparison |= {"leader": "blend", "pairs": [pair | {"sentence": sentence}, tie | {"sentence": "tie"}]}
    phases: dict[str, dict[str, float]] = {
        "run": {"planning": 0.1, "preparing the table": 8.5, "scoring": 1.5}
    }
    for lane in sorted({trial.lane for trial in trials}):
        phases[f"lane {lane} trees"] = {"starting Spark": 3.1, "loading": 1.0, "training": 12.5}
        phases[f"lane {lane} neural"] = {"loading": 0.5, "training": 20.25}
    return Results.model_validate(
        {
            "schema_version": 1, "run": run_info(),
            "data": {
                **schema.model_dump(include=set(DataInfo.model_fields) - {"weighted"}),
                "num_features": len(schema.features), "weighted": schema.weight is not None,
            },
            "models": models, "trials": trials, "comparison": comparison, "phases_s": phases,
            "cost": {"device_hours": 0.046, "energy_wh": None, "price": None},
        }
    )  # fmt: skip


def run_info() -> RunInfo:
    host = HostRecord(
        system="Linux", processor="CPU", cores=2, available_memory_bytes=2**33, gpus=(), driver=None
    )
    return RunInfo(
        name="demo", started_at="2026-11-21T03:00:00Z", wall_s=83.2, sparkgpu="0.1.0",
        versions={"h2o": "3.46"}, host=host, peak_rss_bytes=2**32,
    )  # fmt: skip


def _write_trial(
    paths: RunPaths, name: str, model: str, task: str, row_id_N: Any, label_N: Any, num_classes: int, rng: Any
) -> None:
    trial = paths.trial(name)
    order = rng.permutation(len(row_id_N))  # engines need not keep the table's order
    noise = 1.0 if model == "trees" else 1.6
    columns: dict[str, Any] = {"row_id": row_id_N[order], "split": ["test"] * len(order)}
    if task == "regression":
        columns["prediction"] = (label_N + rng.normal(0, 10 * noise, len(order)))[order]
    else:
        logits_NC = rng.normal(0, noise, (len(order), num_classes))
        logits_NC[np.arange(len(order)), label_N] += 1.5
        share_NC = np.exp(logits_NC) / np.exp(logits_NC).sum(axis=1, keepdims=True)
        columns |= {f"probability_{code}": share_NC[order, code] for code in range(num_classes)}
    trial.root.mkdir(parents=True)
    pq.write_table(pa.table(columns), trial.predictions)
    lines = [
        f"{step},{0.1 * step:.1f},log_loss,{0.6 / step**0.3:.4f},{0.6 / step**0.2:.4f}"
        for step in range(1, 31)
    ]
    write_text(trial.learning_curve, "\n".join(["step,elapsed_s,metric,train,valid", *lines, ""]))
    write_text(trial.done, "")


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    """A binary run of two lanes with its report built, for tests that only read."""
    from sparkgpu.present.report import build

    paths = make_run(tmp_path_factory.mktemp("plain") / "run")
    build(paths)
    return paths


OnlySections = Callable[..., None]


@pytest.fixture
def only_sections(monkeypatch: pytest.MonkeyPatch) -> OnlySections:
    """Leaves these sections alone on the pages of a test that looks at no other.

    `test_each_task_has_its_picture` makes the whole page of each task.
    """
    from sparkgpu.present import report

    def leave(*ids: str) -> None:
        wanted = tuple(section for section in report.SECTIONS if section.id in ids)
        assert len(wanted) == len(ids)
        monkeypatch.setattr(report, "SECTIONS", wanted)

    return leave


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are made and not drawn, for tests that read a page's words alone."""
    from sparkgpu.present.figure import Picture

    monkeypatch.setattr(Picture, "svg", "")
    monkeypatch.setattr(Picture, "png", b"")


@pytest.fixture
def run_directory(tmp_path: Path) -> Callable[..., RunPaths]:
    """`make_run` under a temporary folder."""

    def make(**options: Any) -> RunPaths:
        return make_run(tmp_path / "run", **options)

    return make
