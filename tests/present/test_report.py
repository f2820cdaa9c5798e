"""The report is built from a run directory alone, shows the run's results, and is self-contained."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from io import StringIO

import pytest
from more_models import with_models
from page import Page

from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import number_text
from sparkgpu.present.cards import card_path
from sparkgpu.present.report import build
from sparkgpu.present.run_result import read_run
from sparkgpu.present.terminal.display import open_display

MakeRun = Callable[..., RunPaths]
OnlySections = Callable[..., None]

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def plain_page(plain_run: RunPaths) -> Page:
    return Page((plain_run.report / "index.html").read_text(encoding="utf-8"))


def page_of(paths: RunPaths) -> Page:
    return Page(build(paths).read_text(encoding="utf-8"))


def test_the_page_puts_the_models_side_by_side_with_differences_and_seconds(
    plain_page: Page,
) -> None:
    page = plain_page
    assert page.row("test split") == ["test split", "trees", "neural", "blend"]
    assert page.row("ROC AUC ↑")[1:] == ["0.7000 ± 0.0012", "0.6000 ± 0.0012", "0.7123 ★"]
    assert page.row("log loss ↓")[1:] == ["0.7000 ± 0.0012", "0.6000 ± 0.0012 ★", "0.7123"]
    assert page.row("mean fit time")[1:] == ["12 s", "12 s", "–"]
    assert page.row("trees minus neural")[1:4] == ["+0.100", "+0.080 to +0.120", "trees ahead"]
    assert page.row("blend minus trees")[1:4] == ["−0.0010", "−0.0030 to +0.0010", "tie"]
    phases = ["run", *(f"lane {lane} {branch}" for lane in (0, 1) for branch in ("trees", "neural"))]
    assert page.row("phase")[1:] == phases
    assert page.row("training")[1:] == ["–", "12 s", "20 s", "12 s", "20 s"]
    assert page.row("sum")[1:] == ["10 s", "17 s", "21 s", "17 s", "21 s"]


def test_the_heading_gives_the_verdict_in_one_sentence(plain_run: RunPaths, plain_page: Page) -> None:
    verdict = (
        "Trees are ahead of the network: ROC AUC 0.7000 against 0.6000, a difference of 0.100 "
        "(95 % interval 0.080 to 0.120); the blend of both, level with trees, reaches 0.7123."
    )
    assert verdict in plain_page.text
    assert f"**{verdict}**" in (plain_run.report / "report.md").read_text(encoding="utf-8")


def test_the_page_opens_offline_and_holds_its_pictures(plain_page: Page) -> None:
    page = plain_page
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= page.ids
    assert page.tags.count("svg") == 6  # models, ROC, precision, reliability, learning curves, time
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in page.addresses)
    assert not {"link", "iframe"} & set(page.tags)
    order = ["#result", "#quality", "#data", "#training", "#machine", "#repeat"]
    assert [address for address in page.addresses if address in order] == order


@pytest.mark.parametrize(
    ("task", "drawn", "saved"),
    [
        ("binary", {"precision_recall", "reliability"}, {"roc_curves", "reliability"}),
        ("multiclass", {"reliability"}, {"confusion_matrix", "reliability"}),
        ("regression", {"residuals"}, {"predicted_vs_true"}),
    ],
)
def test_each_task_is_shown_from_all_sides(
    run_directory: MakeRun, task: str, drawn: set[str], saved: set[str]
) -> None:
    paths = run_directory(task=task, repeats=1, weight="w")
    text = build(paths).read_text(encoding="utf-8")
    assert drawn | saved <= set(re.findall(r'aria-labelledby="([a-z_]+)-1-title"', text))
    assert "Where trees and neural disagree" in text and "The most wrong rows of " in text
    pictures = {f"{name}.png" for name in saved | {"leaderboard", "learning_curves", "timings"}}
    names = {path.name for path in paths.report.iterdir()}
    assert names == pictures | {"index.html", "report.md", "metrics.csv", "cards"}
    assert all((paths.report / name).read_bytes().startswith(PNG) for name in pictures)


def test_text_from_the_users_data_is_harmless(run_directory: MakeRun) -> None:
    classes = ("<script>alert(1)</script>", "$\\frac{1$", "日本")
    paths = run_directory(task="multiclass", classes=classes, target="<img src=x onerror=alert(1)>")
    page = page_of(paths)
    assert page.tags.count("script") == 1  # our own
    assert "img" not in page.tags
    assert "<img src=x onerror=alert(1)>" in page.text
    markdown = (paths.report / "report.md").read_text(encoding="utf-8")
    assert "<" not in markdown
    assert r"| a\|b\[c\] \_d\_ | one value in every row |" in markdown


@pytest.mark.usefixtures("undrawn")
def test_a_branch_that_failed_leaves_the_other_and_its_reason(
    run_directory: MakeRun, only_sections: OnlySections
) -> None:
    only_sections("result", "training")
    page = page_of(run_directory(models=("trees",), failed=("trees-s8",)))
    assert (
        "Trees reached ROC AUC 0.7000 on the test split; the other branch did not finish, "
        "so there is nothing to compare." in page.text
    )
    assert page.row("neural-s7") == ["neural-s7", "lane 0 ended: <b>out of memory</b>"]
    assert page.row("ROC AUC ↑")[1:] == ["0.7000", "–"]
    assert "b" not in page.tags


@pytest.mark.usefixtures("undrawn")
def test_a_model_that_the_run_leaves_out_is_not_shown(
    run_directory: MakeRun, only_sections: OnlySections
) -> None:
    only_sections("result")
    paths = run_directory(models=("trees",))
    found = read_json(paths.metrics)
    found["models"][1] |= {"status": "left out", "engine": None}
    found["trials"] = [trial for trial in found["trials"] if trial["model"] == "trees"]
    write_json(paths.metrics, found)
    page, stream = page_of(paths), StringIO()
    with open_display(True, stream) as display:
        display.finish(read_results(paths), paths)
    assert "Trees reached ROC AUC 0.7000 on the test split." in page.text
    assert page.row("test split") == ["test split", "trees"]
    assert "neural" not in stream.getvalue() and "*" not in stream.getvalue()
    assert read_run(paths.root).leaderboard()["model"].tolist() == ["trees"]


@pytest.mark.parametrize("models", [(), ("trees",)])
@pytest.mark.usefixtures("undrawn")
def test_a_run_with_few_finished_trials_or_none_has_a_whole_report(
    run_directory: MakeRun, models: tuple[str, ...]
) -> None:
    paths = run_directory(models=models)
    assert ("No model finished, so there is nothing to compare" in page_of(paths).text) == (not models)
    assert (paths.report / "roc_curves.png").exists() == bool(models)
    tables: list[set[int]] = [set()]
    for line in (paths.report / "report.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            tables[-1].add(line.replace(r"\|", "").count("|"))
        else:
            tables.append(set())
    counts = [cells for cells in tables if cells]
    assert len(counts) >= 4 and all(len(cells) == 1 for cells in counts)  # as many cells in every row


@pytest.mark.usefixtures("undrawn")
def test_the_data_and_the_devices_are_described(run_directory: MakeRun, only_sections: OnlySections) -> None:
    only_sections("data", "training", "machine")
    page = page_of(run_directory(rows=4000, repeats=1))
    assert page.row("train") == ["train", "4,000", "33.3 %"]
    assert page.row("a|b[c] _d_")[1] == "one value in every row"
    assert "time_hour: expanded to hour and weekday" in page.text
    assert "12,000 (12 refused: no target value)" in page.text
    assert page.row("0") == ["0", "cpu", "CPU", "1", "1", "2.0 GiB", "54321"]
    assert page.row("trees-s7")[1:3] == ["h2o-xgboost", "0, cpu"]


@pytest.mark.usefixtures("undrawn")
def test_folds_show_in_the_table_of_trials(run_directory: MakeRun, only_sections: OnlySections) -> None:
    only_sections("result", "training")
    page = page_of(run_directory(folds=2))
    columns = page.row("trial")
    assert columns[:5] == ["trial", "engine", "lane", "seed", "fold"]
    assert page.row("neural-s8-f1")[:5] == ["neural-s8-f1", "torch", "1, cpu", "8", "1"]
    assert "h2o-xgboost, 4 trials" in page.text


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_what_each_layer_gained_and_what_another_split_would_show(
    run_directory: MakeRun, only_sections: OnlySections
) -> None:
    only_sections("result")
    paths = run_directory(folds=3)
    found = read_json(paths.metrics)
    trees = next(model for model in found["models"] if model["name"] == "trees")
    trees["averaged"] = {split: {"roc_auc": 0.705} for split in ("valid", "test")}
    over = {"folds": 3, "ahead": 2, "difference": 0.09, "ci95": [-0.01, 0.19]}
    found["comparison"]["pairs"][0]["over_folds"] = over
    write_json(paths.metrics, found)
    page = page_of(paths)
    assert page.row("trees, a single training") == ["trees, a single training", "0.7000", "–", "0.7000", "–"]
    assert page.row("the mean of its 6 trainings")[1:3] == ["0.7050", "+0.00500"]
    assert page.row("the blend with other models")[3:] == ["0.7123", "+0.00734"]
    assert page.row("trees minus neural")[4] == "−0.01 to +0.19; trees ahead in 2 of 3"
    assert "its 95 % interval says what another split of the rows would show" in page.words


def test_metrics_csv_has_a_row_per_model_and_per_trial(plain_run: RunPaths) -> None:
    rows = list(csv.DictReader(StringIO((plain_run.report / "metrics.csv").read_text(encoding="utf-8"))))
    assert rows[0].keys() == {"model", "trial", "split", "metric", "value", "std"}
    found = {(r["model"], r["trial"], r["split"], r["metric"]): (r["value"], r["std"]) for r in rows}
    assert found["trees", "", "test", "roc_auc"] == ("0.7", "0.00123")
    assert found["trees", "", "valid", "roc_auc"] == ("0.7", "")
    assert found["neural", "neural-s8", "test", "log_loss"] == ("0.6", "")
    assert len(rows) == (3 + 4) * 2 * 6


@pytest.mark.usefixtures("undrawn")
def test_a_column_of_weights_is_named(
    run_directory: MakeRun, plain_page: Page, only_sections: OnlySections
) -> None:
    only_sections("result", "quality")
    sentence = (
        "Column <i>w</i> weights the rows in every metric, in the intervals and in the weights of the blend."
    )
    page = page_of(run_directory(weight="<i>w</i>", repeats=1))
    assert sentence in page.text
    assert "weights the rows" not in plain_page.text


def test_models_of_any_name_are_shown_and_drawn(run_directory: MakeRun, only_sections: OnlySections) -> None:
    only_sections("result", "quality")
    paths = run_directory(repeats=1)
    with_models(paths, ["my own", "a fourth"])
    metrics = read_json(paths.metrics)
    metrics["models"][-1]["weights"] = {"trees": 0.5, "my own": 0.5}
    write_json(paths.metrics, metrics)
    page = page_of(paths)
    assert page.row("test split")[:2] == ["test split", "ROC AUC ↑"]  # so many stand below each other
    for name in ("trees", "neural", "a fourth", "my own"):
        assert page.row(name)[0] == name
    assert page.row("blend")[0] == "blend"
    assert (paths.report / "roc_curves.png").read_bytes().startswith(PNG)


@pytest.mark.usefixtures("undrawn")
def test_null_values_show_as_dashes(run_directory: MakeRun, only_sections: OnlySections) -> None:
    only_sections("result", "machine")
    paths = run_directory(repeats=1)
    metrics = read_json(paths.metrics)
    for entry in (*metrics["models"], *metrics["trials"]):
        entry["metrics"]["test"]["roc_auc"] = None
    metrics["comparison"]["pairs"][0] |= {"difference": None, "ci95": [None, None], "verdict": "tie"}
    metrics["phases_s"] = {}
    write_json(paths.metrics, metrics)
    page = page_of(paths)
    assert page.row("ROC AUC ↑")[1:] == ["–", "–", "–"]
    assert page.row("trees minus neural")[1:4] == ["–", "–", "tie"]
    assert not (paths.report / "timings.png").exists()


@pytest.mark.usefixtures("undrawn")
def test_predictions_that_are_gone_and_blanks_in_a_learning_curve_cost_their_part_alone(
    run_directory: MakeRun, only_sections: OnlySections
) -> None:
    only_sections("result", "quality", "training")
    paths = run_directory(repeats=1)
    build(paths)
    for name in ("trees-s7", "neural-s7"):
        paths.trial(name).predictions.unlink()
    blanks = ["1,,auc,,0.5", "2,,auc,,", "2,,log_loss,0.1,0.2", "3,,auc,,0.6"]
    lines = ["step,elapsed_s,metric,train,valid", *blanks]
    paths.trial("trees-s7").learning_curve.write_text("\n".join(lines))
    paths.trial("neural-s7").learning_curve.write_text(f"{lines[0]}\n")
    page = page_of(paths)
    assert page.row("ROC AUC ↑")[3] == "0.7123 ★"
    assert not (paths.report / "roc_curves.png").exists()  # an earlier one is removed, too
    assert (paths.report / "learning_curves.png").exists()


def test_building_twice_gives_the_same_files(plain_run: RunPaths) -> None:
    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in plain_run.report.rglob("*") if path.is_file()}

    first = files()
    build(plain_run)
    assert files() == first


def test_each_model_has_a_card_with_its_metrics_and_how_to_load_it(plain_run: RunPaths) -> None:
    results = read_results(plain_run)
    for model in results.models:
        text = card_path(plain_run, model.name).read_text(encoding="utf-8")
        assert text.startswith("---\nlibrary_name: sparkgpu\n")
        assert f'sparkgpu.load("RUN_DIR", "{model.name}")' in text
        (row,) = (line for line in text.splitlines() if line.startswith("| ROC AUC |"))
        assert number_text(model.metrics.test["roc_auc"]) in row and " to " in row
        assert "| expected calibration error |" in text and "{" not in text


@pytest.mark.usefixtures("undrawn")
def test_the_verdict_on_many_models_names_the_best_single_one_and_the_blend(
    run_directory: MakeRun, only_sections: OnlySections
) -> None:
    only_sections("result")
    paths = run_directory(repeats=1)
    metrics = read_json(paths.metrics)
    trees = next(model for model in metrics["models"] if model["name"] == "trees")
    better = {split: {**values, "roc_auc": 0.95} for split, values in trees["metrics"].items()}
    metrics["models"].insert(2, trees | {"name": "catboost", "metrics": better})
    metrics["comparison"]["leader"] = "catboost"
    write_json(paths.metrics, metrics)
    text = page_of(paths).text
    assert "; the validation rows favour catboost of all 3 models (ROC AUC 0.9500 on the test rows)." in text
    metrics["comparison"]["leader"] = "blend"
    write_json(paths.metrics, metrics)
    assert "; the blend, level with" in page_of(paths).text or "; the blend leads with" in page_of(paths).text


@pytest.mark.usefixtures("undrawn")
def test_of_a_large_table_evenly_spaced_rows_are_drawn_and_the_page_says_so(
    run_directory: MakeRun, monkeypatch: pytest.MonkeyPatch, only_sections: OnlySections
) -> None:
    only_sections("quality")
    monkeypatch.setattr("sparkgpu.present.report.MOST_ROWS", 50)
    paths = run_directory(weight="w", repeats=1)
    assert "Drawn from every 11th row." in page_of(paths).text
    assert "evenly spaced part of the test rows" in card_path(paths, "trees").read_text(encoding="utf-8")
