"""The pictures of quality and failures hold for odd tables: few rows, few values, one class, many models."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from more_models import with_models

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import distinct, short
from sparkgpu.present.figure import Picture
from sparkgpu.present.pictures.shared import compact
from sparkgpu.present.report import build

MakeRun = Callable[..., RunPaths]


@pytest.fixture(autouse=True)
def _only(only_sections: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    only_sections("quality", "failures")
    monkeypatch.setattr(Picture, "png", b"")  # the tests look at the page


def page_of(paths: RunPaths) -> str:
    return build(paths).read_text(encoding="utf-8")


def pictures_of(page: str) -> set[str]:
    return set(re.findall(r'aria-labelledby="([a-z_]+)-1-title"', page))


def with_labels(paths: RunPaths, label_of: Callable[[np.ndarray], np.ndarray]) -> None:
    """Replace the labels of the test rows."""
    for file in paths.split("test").glob("*.parquet"):
        table = pq.ParquetFile(file).read()
        label_N = label_of(table["label"].to_numpy())
        place = table.column_names.index("label")
        pq.write_table(table.set_column(place, "label", pa.array(label_N)), file)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_three_rows_are_enough_for_a_page(run_directory: MakeRun, task: str) -> None:
    page = page_of(run_directory(task=task, rows=3, repeats=1))
    assert "The test split is too small" in page


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_test_rows_of_one_class_leave_what_is_defined(run_directory: MakeRun, task: str) -> None:
    paths = run_directory(task=task, repeats=1)
    with_labels(paths, np.zeros_like)
    found = pictures_of(page_of(paths))
    assert "reliability" in found
    assert not {"roc_curves", "precision_recall"} & found


@pytest.mark.parametrize(
    ("label_of", "said"),
    [
        (lambda label_N: 10 ** np.random.default_rng(2).uniform(0, 5, len(label_N)), "Logarithmic axes."),
        (lambda label_N: np.round(label_N / 20) * 20.0, "Stronger colour: more rows"),
        (lambda label_N: np.full_like(label_N, 7.0), ""),
    ],
    ids=["over decades", "in steps", "constant"],
)
def test_a_target_of_any_kind_of_numbers_has_its_picture(
    run_directory: MakeRun, label_of: Callable[[np.ndarray], np.ndarray], said: str
) -> None:
    paths = run_directory(task="regression", rows=3000, repeats=1)
    with_labels(paths, label_of)
    page = page_of(paths)
    assert said in page and "predicted_vs_true" in pictures_of(page)


def test_a_single_model_has_nothing_to_disagree_with(run_directory: MakeRun) -> None:
    page = page_of(run_directory(models=("trees",), repeats=1))
    assert {"roc_curves", "reliability"} <= pictures_of(page)
    assert "disagree" not in page.lower()


def test_ten_models_with_long_names_share_each_picture(run_directory: MakeRun) -> None:
    paths = run_directory(task="regression", repeats=1)
    with_models(paths, [f"a model with a very long name, number {number}" for number in range(8)])
    page = page_of(paths)
    assert "The best 4 of 11 models." in page
    assert "agreement" in pictures_of(page)


def test_a_planted_bad_segment_is_shown_with_the_models_that_share_it(run_directory: MakeRun) -> None:
    paths = run_directory(task="regression", rows=2000, repeats=1)
    for file in paths.split("test").glob("*.parquet"):
        table = pq.ParquetFile(file).read()
        worse_N = np.where(table["c"].to_numpy() == 1, 60.0, 0.0)  # the code of level b
        label_N = table["label"].to_numpy() + worse_N
        pq.write_table(table.set_column(1, "label", pa.array(label_N)), file)
    page = page_of(paths)
    assert "&lt;script&gt; = b" in page
    assert "all models" in page


def test_names_are_shortened_so_that_they_can_be_told_apart() -> None:
    assert short("short") == "short"
    assert short("a very long class name 17", 14) == "a very lon… 17"
    assert len(set(distinct([f"{'x' * 30}{code}{'y' * 30}" for code in range(3)]))) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, "0.25"), (-3, "−3"), (25000, "25k"), (1.5e6, "1.5M"), (9999, "9999"), (0, "0")],
)
def test_numbers_of_an_axis_are_short(value: float, text: str) -> None:
    assert compact(value) == text
