"""Runs of several models, and runs with a time limit."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from running import COMMAND, SMALL, finished, write_table

import sparkgpu
from sparkgpu.core.rundir.metrics_json import Results, read_results
from sparkgpu.predict.export import export
from sparkgpu.present.cards import card_path
from sparkgpu.runs.folder import resumed_config

pytestmark = pytest.mark.spark


def test_five_models_meet_on_the_same_rows_and_one_that_fails_harms_no_other(
    wine: Path, tmp_path: Path
) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("catboost")
    failing = tmp_path / "contest.toml"
    failing.write_text(
        '[[models]]\nname = "refused"\nengine = "xgboost"\ntree_method = "exact"\nmax_depth = 0\n'
    )
    run = finished(
        [*COMMAND, "run", wine, "--target", "target", "--task", "multiclass", "--cpu-lanes", "2",
         "--repeats", "1", "--config", failing, "--also", "lightgbm,catboost,resnet", *SMALL],
        tmp_path / "run", tmp_path, code=5,
    )  # fmt: skip
    results = read_results(run.paths)
    state = {model.name: model.status for model in results.models}
    assert state == {
        "trees": "done", "neural": "done", "refused": "failed", "lightgbm": "done", "catboost": "done",
        "resnet": "done", "blend": "done",
    }  # fmt: skip
    assert "needs a depth" in results.failed[0].error
    lanes = {trial.model: trial.lane for trial in results.trials}
    assert len({lanes[name] for name in ("trees", "refused", "lightgbm", "catboost")}) == 2
    assert lanes["neural"] != lanes["resnet"]

    # Pairs: the question, the best against every other model, the blend against each.
    finished_models = [name for name, status in state.items() if status == "done" and name != "blend"]
    pairs = {frozenset((pair.a, pair.b)) for pair in results.comparison.pairs}
    assert {frozenset(("trees", "neural"))} < pairs
    assert {frozenset(("blend", name)) for name in finished_models} < pairs
    blend = next(model for model in results.models if model.name == "blend")
    assert blend.weights is not None and sum(blend.weights.values()) == pytest.approx(1)
    assert blend.weights.keys() == set(finished_models)
    metric = results.comparison.metric
    of_valid = {model.name: model.metrics.valid[metric] for model in results.models if model.trials}
    assert all(of_valid["blend"] <= value + 1e-9 for value in of_valid.values() if value is not None)

    # Each can be used afterwards, and the run can be repeated.
    frame = pd.read_parquet(wine)
    for name in (*finished_models, "blend"):
        assert sparkgpu.load(run.paths.root, name).predict_proba(frame).shape == (len(frame), 3)
    # A file holds the model at temperature 1, and is checked against the run's predictions, which are scaled.
    assert all(trial.temperature is not None for trial in results.done())
    for name, format in (
        ("trees", "xgboost"), ("lightgbm", "lightgbm"), ("catboost", "catboost"), ("resnet", "torch"),
    ):  # fmt: skip
        assert export(run.paths.root, name, format).exists()
    config = resumed_config(run.paths.root, {})
    assert config.model_names == ("trees", "neural", "refused", "lightgbm", "catboost", "resnet")
    assert all(card_path(run.paths, name).exists() for name in finished_models)


def test_a_run_ends_in_its_time_and_uses_it_for_further_seeds(wine: Path, tmp_path: Path) -> None:
    run = finished(
        [*COMMAND, "run", wine, "--target", "target", "--task", "multiclass", "--cpu-lanes", "1",
         "--time-limit", "22s", "--set", "neural.epochs=5000", "--set", "neural.patience=0"],
        tmp_path / "run", tmp_path,
    )  # fmt: skip
    results = read_results(run.paths)
    assert results.run.time_limit_s == 22.0
    assert results.failed == ()
    trees, neural = (next(m for m in results.models if m.name == name) for name in ("trees", "neural"))
    assert trees.status == neural.status == "done"
    assert (trees.metrics.test["accuracy"] or 0) > 0.8
    # Twelve seeds of so many epochs fit on no machine; what does not begin is no failure.
    planned = json.loads(run.paths.plan.read_text())["trials"]
    begun = {trial.name for trial in results.trials}
    left = {trial["name"] for trial in planned} - begun
    assert left and all(run.paths.trial(name).left_out.exists() for name in left)
    assert not run.left_behind()


@pytest.mark.slow
def test_best_within_a_limit_bags_all_kinds_over_folds_and_ends_in_its_time(tmp_path: Path) -> None:
    table = write_table("diabetes", tmp_path)
    run = finished(
        [*COMMAND, "run", table, "--target", "target", "--cpu-lanes", "1", "--preset", "best",
         "--time-limit", "100s", "--set", "trees.engine=xgboost"],
        tmp_path / "run", tmp_path,
    )  # fmt: skip
    results = read_results(run.paths)
    assert 70.0 < results.run.wall_s < 105.0
    folds = {trial.fold for trial in results.done("trees")}
    assert len(folds) > 1 and results.failed == ()
    assert {"trees", "neural", "realmlp", "blend"} <= {model.name for model in results.models}
    blend = results.models[-1]
    assert (blend.metrics.test["r2"] or 0.0) > 0.2
    assert all(pair.over_folds for pair in results.comparison.pairs)
    page = (run.paths.report / "report.md").read_text()
    assert "What each layer gained" in page
    assert sparkgpu.load(run.paths.root, "blend").predict(pd.read_parquet(table)).shape == (442,)


SEARCHED = (
    "--target", "target", "--cpu-lanes", "1", "--search", "6", "--set", 'models=["neural", "lightgbm"]',
    "--set", "neural.architecture=mlp", "--set", "neural.epochs=12", "--set", "trees.ntrees=60",
    "--set", "report.level=short",
)  # fmt: skip


def searched(table: Path, folder: Path, *more: str) -> tuple[Results, dict[str, list[list[str]]]]:
    """The results of a search, and each history without its seconds."""
    pytest.importorskip("lightgbm")
    pytest.importorskip("optuna")
    folder.mkdir()
    run = finished([*COMMAND, "run", table, *SEARCHED, *more], folder / "run", folder)
    histories = {}
    for file in (run.paths.root / "trials").glob("*-tuned-*/search.csv"):
        lines = [line.split(",") for line in file.read_text().splitlines()]
        histories[file.parent.name] = [[*line[:3], *line[4:]] for line in lines]
    # Only the best setting's trial is left of a search.
    assert all("." not in path.name for path in (run.paths.root / "trials").iterdir())
    return read_results(run.paths), histories


def test_a_search_is_never_worse_than_the_defaults_on_validation_rows(tmp_path: Path) -> None:
    table = write_table("breast_cancer", tmp_path)
    results, histories = searched(table, tmp_path / "one")
    models = {model.name: model for model in results.models}
    metric = results.comparison.metric
    for name in ("neural", "lightgbm"):
        before, after = models[name].metrics.valid[metric], models[f"{name}-tuned"].metrics.valid[metric]
        assert before is not None and after is not None and after >= before - 1e-9
        history = histories[f"{name}-tuned-s7"]
        assert len(history) == 1 + 6
        done = [float(line[2]) for line in history[1:] if line[1] == "done"]
        assert max(done) == pytest.approx(after, abs=1e-9)
        assert done[0] == pytest.approx(before, abs=1e-9)  # the first setting is the default one
    pairs = {frozenset((pair.a, pair.b)) for pair in results.comparison.pairs}
    assert {frozenset((name, f"{name}-tuned")) for name in ("neural", "lightgbm")} <= pairs


@pytest.mark.slow
def test_a_search_repeats_itself_and_covers_all_folds(tmp_path: Path) -> None:
    table = write_table("breast_cancer", tmp_path)
    folds = ("--set", "split.folds=2", "--repeats", "1")
    first, histories = searched(table, tmp_path / "one", *folds)
    again, repeated = searched(table, tmp_path / "two", *folds)
    assert histories == repeated
    assert [model.metrics for model in first.models] == [model.metrics for model in again.models]
    tuned = [trial for trial in first.done() if trial.model == "lightgbm-tuned"]
    assert [trial.fold for trial in tuned] == [0, 1]
    assert tuned[0].search == tuned[1].search
