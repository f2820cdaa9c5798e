"""Intervals and sets of a finished run: in its report, by `predict`, in Python, and what exports say."""

from __future__ import annotations

import json
from html import unescape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from made_run import MadeRun
from made_table import write_made_results
from trained_run import people, prepared_run, train

import sparkgpu
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.metrics_json import Results, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import Task
from sparkgpu.predict.apply import predict_source
from sparkgpu.predict.export import notes_on
from sparkgpu.present.cards import card_path
from sparkgpu.present.report import build
from sparkgpu.present.terminal.display import open_display

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:values that training never saw")

MODELS = {"small": ("xgboost", {"trees.ntrees": 5}), "large": ("xgboost", {"trees.ntrees": 40})}


def sure_run(root: Path, task: Task, coverage: float | None = 0.8) -> RunPaths:
    paths = prepared_run(root / "run", task, rows=1_500)
    train(paths, MODELS, coverage=coverage)
    people(2_000, 2, task).to_parquet(root / "new.parquet", coerce_timestamps="us")
    return paths


def test_numbers_get_lower_and_upper_ends_that_hold_the_truth(tmp_path: Path) -> None:
    paths, new = sure_run(tmp_path, "regression"), tmp_path / "new.parquet"
    frame = pd.read_parquet(new)
    for name in ("small", "large", "large-s7", "blend"):
        model = sparkgpu.load(paths.root, name)
        outcome = predict_source(model, str(new), tmp_path / f"{name}.parquet")
        found = pd.read_parquet(tmp_path / f"{name}.parquet")
        assert [*found.columns] == ["prediction", "lower", "upper"]
        assert found[["lower", "upper"]].to_numpy() == pytest.approx(model.predict_interval(frame))
        assert frame["y"].between(found["lower"], found["upper"]).mean() == pytest.approx(0.8, abs=0.06)
        assert "lower to upper should hold the truth in 80 % of rows like those of the run" in outcome.notes
    with pytest.raises(ConfigError, match="predict_set: this model predicts numbers; use predict_interval"):
        sparkgpu.load(paths.root).predict_set(frame)
    (note,) = notes_on(paths.root, "large", "xgboost")
    assert note == (
        "the file holds no intervals or sets; sparkgpu predict, sparkgpu.load and MLflow give them."
    )


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_classes_get_a_set_that_holds_the_truth(tmp_path: Path, ending: str) -> None:
    paths, new = sure_run(tmp_path, "multiclass"), tmp_path / "new.parquet"
    frame, out = pd.read_parquet(new), tmp_path / f"out.{ending}"
    model = sparkgpu.load(paths.root)
    predict_source(model, str(new), out)
    found = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out)
    sets = [list(one) if ending == "parquet" else json.loads(one) for one in found["prediction_set"]]
    held_NC = model.predict_set(frame)
    assert sets == [model.classes_[held_C].tolist() for held_C in held_NC]
    inside = np.mean([truth in one for truth, one in zip(frame["y"], sets, strict=True)])
    assert inside == pytest.approx(0.8, abs=0.06)
    with pytest.raises(ConfigError, match="predict_interval: this model predicts classes; use predict_set"):
        model.predict_interval(frame)


@pytest.mark.spark
def test_spark_gives_the_same_sets(spark: SparkSession, tmp_path: Path) -> None:
    paths, new = sure_run(tmp_path, "multiclass"), tmp_path / "new.parquet"
    model = sparkgpu.load(paths.root)
    found = model.transform(spark.read.parquet(str(new))).toPandas()
    held_NC = model.predict_set(pd.read_parquet(new))
    assert [list(one) for one in found["prediction_set"]] == [
        model.classes_[held_C].tolist() for held_C in held_NC
    ]


def test_without_intervals_nothing_has_them(tmp_path: Path) -> None:
    paths, new = sure_run(tmp_path, "regression", coverage=None), tmp_path / "new.parquet"
    assert '"intervals"' not in paths.metrics.read_text(encoding="utf-8")
    model = sparkgpu.load(paths.root)
    predict_source(model, str(new), tmp_path / "out.csv")
    assert [*pd.read_csv(tmp_path / "out.csv")] == ["prediction"]
    assert list(notes_on(paths.root, "large", "xgboost")) == []
    asked = f"sparkgpu run --resume --out {paths.root} --intervals .9"
    with pytest.raises(ConfigError, match=f"predict_interval: {model.name} has none. `{asked}` gives them"):
        model.predict_interval(pd.read_parquet(new))


def made(root: Path, task: Task) -> tuple[RunPaths, Results]:
    run, paths = MadeRun(task), RunPaths(root=root)
    found = run.evaluated(root, coverage=0.8)
    write_made_results(
        paths, run.schema, models=found.models, trials=found.trials, comparison=found.comparison
    )
    write_json(paths.plan, run.plan)
    write_json(paths.schema, run.schema)
    return paths, read_results(paths)


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_report_terminal_and_card_show_what_was_asked_beside_the_test_rows(
    tmp_path: Path, task: Task
) -> None:
    paths, results = made(tmp_path, task)
    (trees,) = (model.intervals for model in results.models if model.name == "trees")
    assert trees is not None
    page = unescape(build(paths).read_text(encoding="utf-8"))
    share = f"{100 * trees.test.coverage:.1f} %"
    assert "How sure are they?" in page and "80.0 %" in page and share in page
    assert ("A set is empty where no class is likely enough." in page) == (task == "binary")
    stream = StringIO()
    with open_display(True, stream) as display:
        display.finish(results, paths)
    what = "intervals" if task == "regression" else "sets"
    lines = stream.getvalue().splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith(what))
    assert lines[place + 2].split()[:3] == ["trees", "80.0", "%"] and share in lines[place + 2]
    card = unescape(card_path(paths, "trees").read_text(encoding="utf-8"))
    assert f"in 80.0 % of rows; in the test rows they do in {share}" in card
    assert "### How sure are they?" in (paths.report / "report.md").read_text(encoding="utf-8")
