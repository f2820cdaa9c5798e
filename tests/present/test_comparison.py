"""Several runs side by side: which are ranked together, what the page and the terminal say, and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page import Page

import sparkgpu
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.files import read_json, write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.compare import board, boards_of, read_runs, short_names, why_apart
from sparkgpu.present.compare_page import compare, settings, versions
from sparkgpu.score import compare as score_compare

MakeRun = Callable[..., RunPaths]


def page_of(folders: list[Path], out: Path) -> Page:
    return Page(compare(folders, out).read_text(encoding="utf-8"))


def copied(paths: RunPaths, root: Path, **changes: object) -> RunPaths:
    """The run once more under `root`, an hour later, with other parts of its ``metrics.json``."""
    shutil.copytree(paths.root, root)
    found = read_json(root / "metrics.json")
    found["run"] |= {"name": root.name, "started_at": "2026-11-21T04:00:00Z"}
    for name, values in changes.items():
        found[name] |= values
    write_json(root / "metrics.json", found)
    return RunPaths(root=root)


def with_better_network(paths: RunPaths) -> None:
    """The network's trials predict nearly the truth on the test rows."""
    labels = pa.concat_tables([pq.read_table(file) for file in sorted(paths.split("test").glob("*.parquet"))])
    noise_N = np.random.default_rng(0).normal(0, 0.3, labels.num_rows)
    positive_N = 1 / (1 + np.exp(-(3.0 * labels["label"].to_numpy() - 1.5 + noise_N)))
    for file in paths.root.glob("trials/neural-*/predictions.parquet"):
        columns = {"row_id": labels["row_id"], "split": ["test"] * labels.num_rows}
        pq.write_table(
            pa.table(columns | {"probability_0": 1 - positive_N, "probability_1": positive_N}), file
        )


def told(folders: list[Path]) -> str | None:
    return why_apart(boards_of(read_runs(folders)))


def test_models_of_runs_with_the_same_test_rows_share_one_leaderboard(
    plain_run: RunPaths, tmp_path: Path
) -> None:
    other = copied(plain_run, tmp_path / "other")
    with_better_network(other)
    runs = read_runs([plain_run.root, other.root])
    (group,) = boards_of(runs)
    assert not settings(runs) and not versions(runs)  # they are the same
    found = board(group)
    assert why_apart([group]) is None and found.chosen_on == "test"  # these runs have no validation rows
    assert (found.entries[0].name, found.entries[0].run) == ("blend", "run") and len(found.entries) == 6
    verdicts = {(entry.name, entry.run): entry.verdict for entry in found.entries}
    assert verdicts["blend", "run"] == "reference" and verdicts["neural", "other"] == "better"
    assert found.verdict == (
        "Best on the test rows: blend of run, with ROC AUC 0.7123; better on the test rows: blend of other, "
        "neural of other."
    )


def test_in_python_the_comparison_is_a_frame_of_the_same_leaderboards(
    plain_run: RunPaths, tmp_path: Path
) -> None:
    other = copied(plain_run, tmp_path / "other")
    with_better_network(other)
    (found,) = (board(group) for group in boards_of(read_runs([plain_run.root, other.root])))
    frame = sparkgpu.compare(sparkgpu.read_run(plain_run.root), str(other.root))
    assert frame["model"].tolist() == [one.name for one in found.entries]
    assert frame["verdict"].tolist() == [one.verdict for one in found.entries]
    assert frame["value"].tolist() == [one.value for one in found.entries]
    assert set(frame["board"]) == {0} and set(frame["metric"]) == {"roc_auc"}
    assert frame.query("verdict == 'reference'")["difference"].isna().all()
    assert (frame.query("verdict == 'better'")["difference_low"] > 0).all()
    with pytest.raises(ConfigError, match="alone was given"):
        sparkgpu.compare(plain_run.root)


def test_a_difference_is_that_of_the_same_rows_in_pairs(plain_run: RunPaths, tmp_path: Path) -> None:
    other = copied(plain_run, tmp_path / "other")
    with_better_network(other)
    a, b = runs = read_runs([plain_run.root, other.root])
    entry = next(one for one in board(runs).entries if (one.name, one.run) == ("neural", "other"))
    labels = a.labels("test")
    assert entry.difference is not None and labels is not None
    from sparkgpu import read_run

    values = [
        read_run(run.paths.root).predictions(model)[["probability_no", "probability_yes"]].to_numpy()
        for run, model in ((b, "neural"), (a, "blend"))
    ]
    expected = score_compare.compare("binary", labels.label_N, *values, 7)
    assert entry.difference.difference == pytest.approx(expected.difference)
    assert entry.difference.ci95 == pytest.approx(expected.ci95)


def test_the_reference_is_the_best_on_the_validation_rows_where_these_are_shared(
    plain_run: RunPaths, tmp_path: Path
) -> None:
    first, second = (copied(plain_run, tmp_path / name) for name in ("first", "second"))
    for paths, value in ((first, 0.8), (second, 0.9)):
        shutil.copytree(paths.split("test"), paths.split("valid"))
        found = read_json(paths.metrics)
        trees = next(model for model in found["models"] if model["name"] == "trees")
        trees["metrics"]["valid"]["roc_auc"] = value
        write_json(paths.metrics, found)
    found = board(read_runs([first.root, second.root]))
    assert found.chosen_on == "validation"
    assert [(one.name, one.run) for one in found.entries if one.is_reference] == [("trees", "second")]
    assert found.verdict == (
        "Best on the validation rows: trees of second, with ROC AUC 0.7000 on the test rows; better on the "
        "test rows: blend of first, blend of second; level with it: trees of first."
    )
    assert found.note == "The reference has the best ROC AUC on the validation rows."


def test_other_targets_tables_and_test_rows_are_not_ranked_together(
    run_directory: MakeRun, tmp_path: Path
) -> None:
    paths = run_directory()
    split, bare = copied(paths, tmp_path / "split"), tmp_path / "bare"
    next(split.split("test").glob("*.parquet")).unlink()
    write_json(bare / "metrics.json", read_json(split.metrics))
    for other, why in (
        (copied(paths, tmp_path / "target", data={"target": "other"}).root,
         "the runs predict different targets, late (binary), other (binary)."),
        (copied(paths, tmp_path / "table", data={"fingerprint": "x"}).root,
         "the runs are of 2 different tables."),
        (split.root,
         "the runs are of one table, but they drew different test rows. The same seed and [split] give the "
         "same rows."),
        (copied(paths, tmp_path / "metric", comparison={"metric": "f1"}).root,
         "different metrics decided them, F1, ROC AUC. Give the runs one --metric."),
        (bare, "the folder of bare lacks its table, so the test rows cannot be checked."),
    ):  # fmt: skip
        assert told([paths.root, other]) == f"No leaderboard ranks all of them: {why}"


def test_the_page_shows_runs_curves_and_what_differs_and_loads_nothing(
    run_directory: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = run_directory()
    other = copied(paths, tmp_path / "other", run={"versions": {"h2o": "3.47"}})
    write_text(paths.config, 'seed = 7\n[trees]\nntrees = 100\n[[models]]\nname = "a"\ndepth = 3\n')
    write_text(other.config, 'seed = 7\n[trees]\nntrees = 200\n[[models]]\nname = "a"\ndepth = 4\n')
    page = compare([paths.root, other.root], tmp_path / "page.html")
    found = Page(page.read_text(encoding="utf-8"))
    assert all(one.startswith("#") for one in found.addresses) and "http" not in found.words
    assert found.tags.count("svg") == 4
    for text in (
        "2 runs of flights.parquet", "sparkgpu comparison", "Leaderboard", "95 % interval", "trees · other",
        "trees.ntrees 100 200", "models.a.depth 3 4", "h2o 3.46 3.47", "seconds of training",
        "4 done", "late (binary)",
    ):  # fmt: skip
        assert text in found.words, text
    assert "seed 7" not in found.words
    printed = capsys.readouterr().out
    assert "minus the reference" in printed and printed.endswith(f"\npage  {page}\n")
    assert page.stat().st_size < 3_000_000


@pytest.mark.usefixtures("undrawn")
def test_programs_read_the_leaderboard_and_differences_are_of_the_runs_own_metric(
    run_directory: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = run_directory()
    found = read_json(paths.metrics)
    found["comparison"]["metric"] = "brier"
    write_json(paths.metrics, found)
    other = copied(paths, tmp_path / "other")
    with_better_network(other)
    page = compare([paths.root, other.root], tmp_path / "page.html", as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["page"], said["apart"]) == (str(page), None)
    (one,) = said["boards"]
    assert (one["metric"], one["runs"]) == ("brier", {"run": str(paths.root), "other": str(other.root)})
    models = {(model["model"], model["run"]): model for model in one["models"]}
    assert models["trees", "run"]["metrics"]["log_loss"] == 0.7
    reference = next(model for model in one["models"] if model["verdict"] == "reference")
    assert reference["difference"] is None
    low, high = models["neural", "other"]["difference"]["ci95"]
    assert low < models["neural", "other"]["difference"]["value"] < high < 0  # a smaller Brier score
    assert models["neural", "other"]["verdict"] == "better"


@pytest.mark.usefixtures("undrawn")
def test_runs_that_are_not_ranked_together_stand_side_by_side(
    run_directory: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = run_directory()
    other = copied(paths, tmp_path / "other", data={"target": "delay", "fingerprint": "another"})
    found = page_of([paths.root, other.root], tmp_path / "page.html")
    assert "the runs predict different targets, delay (binary), late (binary)." in found.words
    assert found.words.count("Best on the validation rows") == 2 and "delay (binary): other" in found.words
    printed = capsys.readouterr().out
    assert printed.startswith("No leaderboard ranks all of them: the runs predict different targets")
    assert "\nlate (binary): run\n" in printed and "\ndelay (binary): other\n" in printed


def test_a_users_text_is_text_on_the_page(run_directory: MakeRun, tmp_path: Path) -> None:
    attack = "<img src=x onerror=alert(1)>"
    paths = run_directory(target=attack)
    other = copied(paths, tmp_path / attack, data={"source": f"/data/{attack}.parquet"})
    write_text(paths.config, "a = 1\n")
    write_text(other.config, f'a = "{attack}"\n')
    found = page_of([paths.root, other.root], tmp_path / "page.html")
    assert "img" not in found.tags and attack in found.words
    assert found.tags.count("script") == 1


@pytest.mark.usefixtures("undrawn")
def test_a_failed_model_is_left_out_and_a_run_without_models_has_no_reference(
    run_directory: MakeRun, tmp_path: Path
) -> None:
    paths = run_directory(repeats=1, failed=("trees-s7", "neural-s7"))
    other = copied(paths, tmp_path / "other")
    found = board(read_runs([paths.root, other.root]))
    assert found.entries == () and found.verdict == (
        "No model of these runs finished, so there is nothing to rank."
    )
    page = page_of([paths.root, other.root], tmp_path / "page.html")
    assert "0 of 2 done" in page.words and "These runs hold no learning curves." in page.words


def test_runs_that_cannot_be_compared_are_refused(plain_run: RunPaths, tmp_path: Path) -> None:
    root, copy = plain_run.root, tmp_path / "copy"
    shutil.copytree(root, copy)
    for folders, message in (
        ([root], f"compare: {root} alone was given. Give the folders of two or more finished runs."),
        ([root, root], f"{root} and {root}: they hold the same run. Name each run once."),
        ([root, copy], f"{root} and {copy}: they hold the same run. Name each run once."),
        ([root, tmp_path], f"{tmp_path}: it holds no metrics.json. Give the folder of a finished run."),
    ):
        with pytest.raises(ConfigError) as refused:
            compare(folders, tmp_path / "page.html")
        assert str(refused.value) == message and not (tmp_path / "page.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_long_names_of_runs_are_short_and_told_apart_and_stand_in_full_once(
    plain_run: RunPaths, tmp_path: Path
) -> None:
    long = "a_long_name_of_a_run_that_says_everything_of_its_settings"
    folders = [copied(plain_run, tmp_path / f"{long}{end}", cost={"price": number}).root
               for number, end in enumerate(("_2026", "_2027", "_with_2026"))]  # fmt: skip
    names = short_names(folders)
    assert len(set(names)) == 3 and max(map(len, names)) <= 34
    assert short_names([Path("a/run"), Path("b/run")]) == ["a/run", "b/run"]
    page = page_of(folders, tmp_path / "page.html")
    assert all(name in page.words for name in names)
    assert all(str(folder) in (tmp_path / "page.html").read_text() for folder in folders)


@pytest.mark.usefixtures("undrawn")
def test_a_page_replaces_only_a_page(plain_run: RunPaths, tmp_path: Path) -> None:
    folders = [plain_run.root, copied(plain_run, tmp_path / "other").root]
    page = compare(folders, tmp_path / "page.html")
    assert compare(folders, page).read_text(encoding="utf-8").startswith("<!doctype html>")
    notes, pdf, nowhere = tmp_path / "notes.html", tmp_path / "a.pdf", tmp_path / "no" / "a.html"
    notes.write_text("mine")
    for out, said in (
        (notes, "it exists, and sparkgpu compare did not write it. Give another name."),
        (pdf, "the page is HTML. Give a name that ends with .html."),
        (nowhere, f"there is no folder {tmp_path / 'no'}. Make it, or give another file."),
    ):
        with pytest.raises(ConfigError) as refused:
            compare(folders, out)
        assert str(refused.value) == f"--out {out}: {said}"
    assert notes.read_text() == "mine"
