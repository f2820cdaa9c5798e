"""A run that failed, was killed or is still going on has a page, too: what happened, and what stands."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from page import Page

from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.report import build
from sparkgpu.runs.folder import record_stop_reason

MakeRun = Callable[..., RunPaths]


def text_of(paths: RunPaths) -> str:
    return build(paths).read_text(encoding="utf-8")


@pytest.fixture
def killed(run_directory: MakeRun) -> RunPaths:
    """Two trials are done, the network of lane 1 was in training, its trees had not begun."""
    paths = run_directory()
    write_text(paths.config, "seed = 7\n")
    paths.metrics.unlink()
    shutil.rmtree(paths.trial("trees-s8").root)
    for name in ("DONE", "predictions.parquet"):
        (paths.trial("neural-s8").root / name).unlink()
    lane = paths.lane(1)
    events = EventWriter(lane.events("neural"), lane.phases("neural"))
    with events.phase("training", "neural-s8"):
        events.progress("neural-s8", 0.3, step=31)
    events.close()
    return paths


def test_a_killed_run_says_what_is_done_what_was_in_training_and_how_to_go_on(killed: RunPaths) -> None:
    page = text_of(killed)
    rows = {row[0]: row[2:] for row in Page(page).rows if len(row) == 4}
    assert rows == {
        "trial": ["state", "last word"], "trees-s7": ["✓ done", "–"], "neural-s7": ["✓ done", "–"],
        "trees-s8": ["not begun", "–"],
        "neural-s8": ["in training", "epoch 30, log loss 0.3039 on validation rows"],
    }  # fmt: skip
    assert (
        "The run has no results yet: it was killed, or it is still going on; its last sign was at 2" in page
    )
    assert "2 of 4 trials are done and will be kept." in page
    assert f"sparkgpu run --resume --out {killed.root}" in page
    markdown = (killed.report / "report.md").read_text(encoding="utf-8")
    assert "| neural-s8 | torch | in training |" in markdown
    assert f"`sparkgpu run --resume --out {killed.root}`" in markdown


def test_the_pictures_and_figures_of_an_earlier_page_go(
    run_directory: MakeRun, only_sections: Callable[..., None]
) -> None:
    only_sections("result")
    paths = run_directory(repeats=1)
    build(paths)
    paths.metrics.unlink()
    build(paths)
    assert {path.name for path in paths.report.iterdir() if path.is_file()} == {"index.html", "report.md"}


def test_what_stopped_the_run_stands_first(killed: RunPaths) -> None:
    write_json(killed.stopped, {"exit_code": 130, "message": "interrupted"})
    assert '<p class="verdict">The run was interrupted.</p>' in text_of(killed)
    write_json(killed.stopped, {"exit_code": 4, "message": "target <late>: no such column."})
    assert '<p class="verdict">The run stopped: target &lt;late&gt;: no such column.</p>' in text_of(killed)


def test_a_trial_and_a_worker_that_failed_keep_their_reasons(killed: RunPaths) -> None:
    write_json(killed.trial("neural-s8").error, {"kind": "trial", "message": "loss is not a number"})
    write_json(killed.lane(1).error("trees"), {"kind": "trial", "message": "Java heap space"})
    page = text_of(killed)
    assert Page(page).row("neural-s8")[2:] == ["✗ failed", "loss is not a number"]
    assert "Lane 1 trees stopped: Java heap space." in page
    assert "<dt>lane 1 trees</dt><dd>Java heap space</dd>" in page


def test_without_a_table_nothing_was_trained(killed: RunPaths) -> None:
    shutil.rmtree(killed.table)
    page = text_of(killed)
    assert "The table was not ready, so nothing was trained." in page
    assert "It begins again" in page


def test_a_refusal_leaves_a_page_and_an_interruption_does_not_wait_for_one(killed: RunPaths) -> None:
    with pytest.raises(DataError), record_stop_reason(killed):
        raise DataError("the table has no rows")
    assert "The run stopped: the table has no rows." in (killed.report / "index.html").read_text("utf-8")
    shutil.rmtree(killed.report)
    with pytest.raises(KeyboardInterrupt), record_stop_reason(killed):
        raise KeyboardInterrupt
    assert not killed.report.exists()


def files_of(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())


def one_of_each_kind(files: list[Path]) -> list[Path]:
    """Of the parts of a split, of the trials and of the lanes only one each."""
    kinds = {re.sub(r"trees|neural|\d+", "", str(file)): file for file in files}
    return list(kinds.values())


@pytest.mark.usefixtures("undrawn")
def test_a_page_is_made_whatever_file_is_cut(run_directory: MakeRun) -> None:
    paths = run_directory(rows=80, repeats=1)
    write_text(paths.config, "seed = 7\n")
    for file in one_of_each_kind(files_of(paths.root)):
        whole = (paths.root / file).read_bytes()
        if whole:
            (paths.root / file).write_bytes(whole[: len(whole) // 2])
            assert "</html>" in text_of(paths), file
            (paths.root / file).write_bytes(whole)


@pytest.mark.usefixtures("undrawn")
def test_a_page_is_made_of_every_beginning_of_a_run(run_directory: MakeRun) -> None:
    paths = run_directory(rows=80, repeats=1)
    write_text(paths.config, "seed = 7\n")
    latest = sorted(files_of(paths.root), key=lambda file: -(paths.root / file).stat().st_mtime_ns)
    for file in latest:
        if file == Path("run.toml"):
            continue
        (paths.root / file).unlink()
        assert "</html>" in text_of(paths), file
    assert "It had no plan yet." in text_of(paths)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    write_text(tmp_path / "holiday.txt", "sun")
    with pytest.raises(ConfigError) as refused:
        build(RunPaths(root=tmp_path))
    assert str(refused.value) == (
        f"{tmp_path}: it holds no metrics.json, plan.json or run.toml; give the folder of a run."
    )
