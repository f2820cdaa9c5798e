"""The report's section on why the models answer as they do."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from sparkgpu.core.rundir.explanations import (
    AddedByColumn,
    ColumnImportance,
    Dependence,
    ExplainedModel,
    Explanations,
    Importance,
    Summary,
)
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.report import build

DIFFERS = "distance matters more to trees (60 % of its importance) than to neural (20 % of its importance)."


def explained(columns: int = 2) -> Explanations:
    """Two models, `columns` columns, a curve of numbers and one of levels."""
    importances = [
        ColumnImportance(
            column="<script>" if place == 1 else "distance" if place == 0 else f"column {place}",
            models={
                "trees": Importance(mean=0.05 / (place + 1), std=0.002, shuffles=5, share=0.6 / (place + 1)),
                "neural": Importance(mean=-0.0001, std=None, shuffles=1, share=0.0),
            },
            differs=DIFFERS if place == 0 else None,
        )
        for place in range(columns)
    ]
    return Explanations(
        metric="roc_auc", rows=100, test_rows=400, dependence_rows=50, columns=columns, seed=7, seconds=6.5,
        models=(
            ExplainedModel(name="trees", engine="h2o-xgboost", trial="trees-s7", value=0.91),
            ExplainedModel(name="neural", engine="torch", trial="neural-s7", value=0.9),
        ),
        pair=("trees", "neural"),
        importances=tuple(importances),
        dependence=(
            Dependence(
                column="distance", title="distance", kind="numeric", at=(1.0, 2.0, 500.0), class_name="yes",
                deciles=(1.0, 2.0, 3.0), curves={"trees": (0.1, 0.2, 0.9), "neural": (0.2, 0.2, 0.8)},
            ),
            Dependence(
                column="<script>", title="<script>", kind="categorical", at=("a", "b"), class_name="yes",
                shares=(0.7, 0.3), curves={"trees": (0.1, 0.2)},
            ),
        ),
        summary=Summary(
            model="trees", scale="log-odds", class_name="yes", rows=3,
            columns=(
                AddedByColumn(column="distance", added=(-1.5, 0.5, 0.5), is_high=(False, True, None)),
                AddedByColumn(column="<script>", added=(0.0, 0.0, 0.1), is_high=(None, None, None)),
            ),
        ),
        notes=("There was no time for 1 column with neural.",),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _only(only_sections: Callable[..., None]) -> None:
    only_sections("why")


@pytest.fixture
def run(run_directory: Callable[..., RunPaths]) -> RunPaths:
    return run_directory()


def texts(paths: RunPaths) -> tuple[str, str]:
    page = build(paths)
    return page.read_text(encoding="utf-8"), (paths.report / "report.md").read_text(encoding="utf-8")


def section(page: str) -> str:
    begin = page.index('<section id="why"')
    return page[begin : page.index("</section>", begin)]


def test_importances_dependence_and_what_differs_are_shown(run: RunPaths) -> None:
    write_json(run.explanations, explained())
    page, markdown = texts(run)
    why = section(page)
    assert why.count("<svg") == 4  # the map, a panel for each of two features, and the summary
    assert "What the leading columns added to the log-odds of yes in 3 test rows, by trees" in why
    for text in ("0.0500", "0.0250", "-0.0001", "0.0500 ± 0.0020", "≠", DIFFERS):
        assert text in why
    assert "<script>" not in why and "&lt;script&gt;" in why
    assert "on 100 of 400 test rows" in why and "6.5 s in all" in why
    assert "There was no time for 1 column with neural." in why
    assert "## Why" in markdown and DIFFERS in markdown
    assert "| distance ≠ | 0.0500 ± 0.0020 | -0.0001 |" in markdown


def test_a_single_shuffle_is_one_and_only_models_that_were_measured_are_level(run: RunPaths) -> None:
    found = explained()
    once = Importance(mean=0.05, std=None, shuffles=1, share=0.6)
    for models in (("trees", "neural"), ("trees",)):
        of_models = {"models": dict.fromkeys(models, once), "differs": None}
        rows = tuple(one.model_copy(update=of_models) for one in found.importances)
        write_json(run.explanations, found.model_copy(update={"importances": rows}))
        page, markdown = texts(run)
        assert "deviation over 1 shuffle, the same" in section(page)
        # With a line that touches the table it would be a row of it.
        assert ("|\n\nNo column matters clearly more" in markdown) == (len(models) == 2)
        assert ("No column matters" in page) == (len(models) == 2)


def test_explanations_may_be_absent_broken_or_of_many_columns(run: RunPaths) -> None:
    page, markdown = texts(run)
    for text in (section(page), markdown):
        assert "The models are not explained. `sparkgpu report run` does it." in text.replace("\\", "")
    write_text(run.explanations, '{"metric": 7}')
    assert "explanations.json: metric: " in section(texts(run)[0])
    write_json(run.explanations, explained(30))
    page, markdown = texts(run)
    assert "column 29" in section(page) and "The leading 20 columns." in section(page)
    assert "column 9 " in markdown and "column 10 " not in markdown


def test_a_model_without_any_importance_is_drawn(run: RunPaths) -> None:
    found = explained()
    nothing = {name: Importance(mean=0.0, std=0.0, shuffles=5, share=0.0) for name in ("trees", "neural")}
    flat = tuple(ColumnImportance(column=one.column, models=nothing) for one in found.importances)
    write_json(run.explanations, found.model_copy(update={"importances": flat, "dependence": ()}))
    page, _ = texts(run)
    assert "No column matters clearly more to trees than to neural, or less." in section(page)


def test_an_axis_of_dates_is_called_by_its_column_and_nothing_is_warned_of(run: RunPaths) -> None:
    days = [(18000.0, 18001.0, 18001.9), (18000.0, 18040.0, 18085.0), (10000.0, 15000.0, 19000.0)]
    dependence = tuple(
        Dependence(
            column="day", title="day (days since 1970)", kind="numeric", at=at, class_name="yes", deciles=at,
            curves={"trees": (0.1, 0.2, 0.9)},
        )
        for at in days
    )  # fmt: skip
    write_json(run.explanations, explained().model_copy(update={"dependence": dependence}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        why = section(texts(run)[0])
    assert ">day</text>" in why and "since 1970" not in why and "2019-Apr" in why
