"""A finished run in Python: its frames, what it says in a notebook, and its refusals."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sparkgpu
from sparkgpu.core.errors import ConfigError, TrialError
from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.score.metrics import compute

MakeRun = Callable[..., RunPaths]


def refusal(kind: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(kind) as refused:
        call()
    return str(refused.value)


def kinds(frame: pd.DataFrame) -> dict[str, str]:
    return {name: str(kind) for name, kind in frame.dtypes.items()}


@pytest.mark.parametrize(
    ("frame", "columns"),
    [
        (
            "leaderboard",
            "model:object engine:object status:object leader:bool trials:int64 roc_auc average_precision "
            "log_loss brier accuracy f1 ci_low ci_high std fit_s predict_s train_rows_per_s",
        ),
        ("curves", "model:object trial:object step:int64 elapsed_s metric:object train valid"),
        ("pairs", "a:object b:object metric:object difference ci_low ci_high ahead:object sentence:object"),
        ("predictions", "row_id:int64 label:object prediction:object probability_no probability_yes"),
    ],
)
def test_frames_have_typed_columns(frame: str, columns: str, plain_run: RunPaths) -> None:
    found = kinds(getattr(sparkgpu.read_run(plain_run.root), frame)())
    assert [f"{name}:{kind}".removesuffix(":float64") for name, kind in found.items()] == columns.split()


def test_the_leaderboard_has_the_best_model_first_with_its_interval_and_seconds(plain_run: RunPaths) -> None:
    found = sparkgpu.read_run(plain_run.root).leaderboard()
    assert list(found["model"]) == ["blend", "trees", "neural"]
    assert list(found["leader"]) == [True, False, False]
    assert found["roc_auc"].is_monotonic_decreasing
    assert (found["ci_low"] < found["ci_high"]).all()
    assert found["fit_s"].isna().tolist() == [True, False, False]


def test_the_interval_lies_around_the_metric_of_the_averaged_predictions(plain_run: RunPaths) -> None:
    run = sparkgpu.read_run(plain_run.root)
    board = run.leaderboard().set_index("model")
    for model in ("trees", "neural", "blend"):
        rows = run.predictions(model)
        labels = (rows["label"] == "yes").to_numpy().astype(int)
        value = compute("binary", labels, rows[["probability_no", "probability_yes"]].to_numpy())["roc_auc"]
        assert value is not None
        assert (board.loc[model, "ci_low"] + board.loc[model, "ci_high"]) / 2 == pytest.approx(value)


def test_a_loss_has_its_smallest_value_first_and_failed_models_come_last(run_directory: MakeRun) -> None:
    paths = run_directory(task="regression", repeats=1, failed=("trees-s7",))
    found = sparkgpu.read_run(paths.root).leaderboard()
    assert list(found["model"]) == ["neural", "trees"] and list(found["status"]) == ["done", "failed"]
    assert np.isnan(found["rmse"].iloc[1]) and np.isnan(found["ci_low"].iloc[1])


def test_predictions_stand_beside_the_labels_and_a_blend_mixes_its_members(plain_run: RunPaths) -> None:
    run = sparkgpu.read_run(plain_run.root)
    found = run.predictions("blend")
    assert found["row_id"].is_monotonic_increasing and set(found["label"]) == {"no", "yes"}
    assert ((found["probability_yes"] > 0.5) == (found["prediction"] == "yes")).all()
    trials = [run.predictions(f"trees-s{seed}")["probability_yes"] for seed in (7, 8)]
    trees = run.predictions("trees")["probability_yes"]
    assert np.allclose(trees, sum(trials) / 2)
    mixed = 0.75 * trees + 0.25 * run.predictions("neural")["probability_yes"]
    assert np.allclose(found["probability_yes"], mixed)


def test_pairs_and_curves_hold_what_the_run_recorded(plain_run: RunPaths) -> None:
    run = sparkgpu.read_run(plain_run.root)
    pairs, curves = run.pairs(), run.curves()
    assert pairs["ahead"].tolist() == ["trees", None]
    assert pairs.loc[0, ["a", "b", "difference", "ci_low"]].tolist() == ["trees", "neural", 0.1, 0.08]
    assert curves.groupby("trial").size().to_dict() == dict.fromkeys(
        ("trees-s7", "neural-s7", "trees-s8", "neural-s8"), 30
    )
    first = curves[curves["trial"] == "neural-s8"].iloc[0]
    assert (first["model"], first["step"], first["metric"], first["valid"]) == ("neural", 1, "log_loss", 0.6)


def test_where_files_are_gone_frames_are_empty_and_nothing_is_drawn(run_directory: MakeRun) -> None:
    run = sparkgpu.read_run(run_directory().root)
    whole = run.curves()
    for file in run.path.glob("trials/*/*.*"):
        file.unlink()
    empty = run.curves()
    assert len(empty) == 0 and kinds(empty) == kinds(whole)
    for plot, what in (
        (run.plot_curves, "the trials left no learning curves."),
        (run.plot_quality, "the predictions of the trials are gone."),
    ):
        assert refusal(ConfigError, plot) == f"there is nothing to draw: {what}"
    assert len(run.plot_leaderboard().png) > 1000


def test_importance_has_a_row_for_each_column_and_model(run_directory: MakeRun) -> None:
    paths = run_directory()
    run = sparkgpu.read_run(paths.root)
    assert refusal(ConfigError, run.importance) == (
        f"{paths.root}: it holds no explanations.json. `sparkgpu report {paths.root}` makes it."
    )
    worth = {"trees": {"mean": 0.2, "std": 0.01, "shuffles": 5, "share": 0.8},
             "neural": {"mean": 0.1, "std": None, "shuffles": 1, "share": 0.5}}  # fmt: skip
    write_json(
        paths.explanations,
        {
            "metric": "roc_auc", "rows": 400, "test_rows": 400, "dependence_rows": 100, "columns": 2,
            "seed": 7, "seconds": 1.0, "models": [], "importances": [{"column": "distance", "models": worth}],
        },
    )  # fmt: skip
    found = run.importance()
    assert kinds(found) == {
        "column": "object", "model": "object", "importance": "float64", "std": "float64", "share": "float64",
        "shuffles": "int64",
    }  # fmt: skip
    assert found.iloc[0].tolist() == ["distance", "trees", 0.2, 0.01, 0.8, 5]
    assert run.plot_importance().png.startswith(b"\x89PNG\r\n")
    assert found.iloc[1, :3].tolist() == ["distance", "neural", 0.1] and np.isnan(found.loc[1, "std"])


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_pictures_are_pngs_that_a_notebook_shows(task: str, run_directory: MakeRun, tmp_path: Path) -> None:
    run = sparkgpu.read_run(run_directory(task=task).root)
    if task == "regression":
        values = run.predictions("trees")
        assert kinds(values) == {"row_id": "int64", "label": "float64", "prediction": "float64"}
    for plot in (run.plot_leaderboard, run.plot_curves, run.plot_quality):
        shown = plot()
        bundle = shown._repr_mimebundle_()
        assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG\r\n")
        assert bundle["text/plain"] == f"<picture: {shown.caption}>" and len(shown.caption) > 20
    file = shown.save(tmp_path / "time.png")
    assert file.read_bytes() == shown.png
    assert (
        refusal(ConfigError, lambda: shown.save("time.svg"))
        == "time.svg: the picture is a PNG. Give a name that ends with .png."
    )


def test_trials_keep_their_failures(run_directory: MakeRun) -> None:
    run = sparkgpu.read_run(run_directory(failed=("neural-s8",)).root)
    assert run.exit_code == 5
    found = run.trials().set_index("trial")
    assert found.loc["neural-s8", "error"] == "lane 1 ended: <b>out of memory</b>"
    assert np.isnan(found.loc["neural-s8", "fit_s"]) and found.loc["trees-s8", "peak_host_bytes"] == 3 * 2**30
    assert str(found["best_iteration"].dtype) == "Int64" and found.loc["trees-s7", "best_iteration"] == 120


def test_a_moved_run_without_its_table_still_shows_its_results(plain_run: RunPaths, tmp_path: Path) -> None:
    write_json(tmp_path / "metrics.json", read_json(plain_run.metrics))
    run = sparkgpu.read_run(tmp_path)
    assert run.leaderboard()["ci_low"].isna().all() and run.exit_code == 0
    assert refusal(ConfigError, run.predictions) == (
        f"{tmp_path}: it holds no table/schema.json. Copy the whole folder of the run."
    )


def test_what_cannot_be_read_is_refused_in_one_sentence(run_directory: MakeRun, tmp_path: Path) -> None:
    assert refusal(ConfigError, lambda: sparkgpu.read_run(tmp_path)) == (
        f"{tmp_path}: it holds no metrics.json. Give the folder of a finished run."
    )
    run = sparkgpu.read_run(run_directory(repeats=1).root)
    with pytest.raises(ConfigError, match=r"model 'tree': it is not in this run\. Did you mean 'trees'"):
        run.predictions("tree")
    assert refusal(ConfigError, lambda: run.leaderboard("train")) == (
        "split 'train': a run keeps predictions of its valid and test rows. Choose one."
    )
    (run.path / "trials" / "trees-s7" / "predictions.parquet").unlink()
    assert refusal(TrialError, lambda: run.predictions("blend")) == (
        f"{run.path}: the predictions of blend for the test rows are not in trials/. "
        "Copy the whole folder of the run."
    )
    assert run.leaderboard().set_index("model")["ci_low"].isna().to_dict() == {
        "trees": True, "neural": False, "blend": True,
    }  # fmt: skip


def test_a_notebook_shows_the_verdict_first_and_plain_tags_only(
    plain_run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sparkgpu.read_run(plain_run.root)
    page = run._repr_html_()
    assert page.startswith(f"<p><b>{run.verdict}</b></p><table>")
    assert set(re.findall(r"<(\w+)", page)) <= {
        "p", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li",
    }  # fmt: skip
    assert "<th>blend</th>" in page and "<th>ROC AUC ↑</th>" in page and "<b>0.7123</b>" in page
    assert "report/index.html" in page
    assert repr(run) == f"<run {plain_run.root}: blend leads with ROC AUC 0.7123>"
    monkeypatch.chdir(plain_run.root.parent)
    assert str(sparkgpu.read_run("run")).endswith("report: run/report/index.html")


def test_a_notebook_shows_a_users_text_as_text(run_directory: MakeRun) -> None:
    paths = run_directory(failed=("neural-s8",))
    found = read_json(paths.metrics)
    found["comparison"]["caveats"] = ["<img src=x onerror=alert(1)> & more"]
    write_json(paths.metrics, found)
    page = sparkgpu.read_run(paths.root)._repr_html_()
    assert "<img" not in page and "<b>out" not in page
    assert "<li>&lt;img src=x onerror=alert(1)&gt; &amp; more.</li>" in page
    assert "<li>neural-s8 failed: lane 1 ended: &lt;b&gt;out of memory&lt;/b&gt;</li>" in page


def test_a_blend_that_is_one_model_again_is_compared_with_none(run_directory: MakeRun) -> None:
    paths = run_directory()
    found = read_json(paths.metrics)
    found["models"][-1]["weights"] = {"trees": 1.0, "neural": 0.0}
    write_json(paths.metrics, found)
    (verdict,) = sparkgpu.read_run(paths.root).verdicts
    assert verdict.startswith("trees ahead of neural")
