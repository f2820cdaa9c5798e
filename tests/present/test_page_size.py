"""The page stays small whatever the table: many classes, many features, many rows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.report import build
from sparkgpu.score.profile import write_profile

MakeRun = Callable[..., RunPaths]

MOST_BYTES = 3_000_000


def test_a_hundred_classes_and_features_fit_in_three_megabytes(run_directory: MakeRun) -> None:
    classes = tuple(f"a very long class name which ends with its number {code}" for code in range(100))
    paths = run_directory(task="multiclass", classes=classes, rows=600, more_features=100, repeats=1)
    for split in ("train", "valid"):
        shutil.copytree(paths.split("test"), paths.split(split))
    write_profile(paths)
    page = build(paths)
    assert page.stat().st_size < MOST_BYTES
    text = page.read_text(encoding="utf-8")
    assert 'id="data"' in text and 'id="quality"' in text  # nothing was left out to make room
    assert "The 40 most frequent of 100 classes." in text
    matrix = re.search(r"<svg[^>]*confusion_matrix-1-title.*?</svg>", text, re.DOTALL)
    assert matrix and len(matrix[0]) < 60_000


def test_many_rows_are_drawn_as_a_density_and_do_not_make_the_page_larger(run_directory: MakeRun) -> None:
    page = build(run_directory(task="regression", rows=20_000, repeats=1))
    assert page.stat().st_size < MOST_BYTES / 3
    assert "Stronger colour: more rows, on a logarithmic scale." in page.read_text(encoding="utf-8")
