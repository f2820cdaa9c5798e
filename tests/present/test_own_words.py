"""Rows and values as the user has them: rows of test files, booleans, thousands, counts of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.metrics_json import read_results, write_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import HeldOut, read_schema
from sparkgpu.present.report import build

pytestmark = pytest.mark.usefixtures("undrawn")

MakeRun = Callable[..., RunPaths]


def texts(paths: RunPaths) -> tuple[str, str]:
    """The page without its tags, and ``report.md``."""
    page = build(paths).read_text(encoding="utf-8")
    return unescape(re.sub(r"<[^>]*>", " ", page)), (paths.report / "report.md").read_text(encoding="utf-8")


def with_column(paths: RunPaths, column: str, value_of: Callable[[np.ndarray], np.ndarray]) -> None:
    for file in paths.split("test").glob("*.parquet"):
        table = pq.ParquetFile(file).read()
        place = table.column_names.index(column)
        value_N = value_of(table["label"].to_numpy()).astype(table[column].to_pandas().dtype)
        pq.write_table(table.set_column(place, column, pa.array(value_N)), file)


def table_of(markdown: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading that begins so, its own headings first."""
    below = markdown[markdown.index(heading) :]
    text = below[below.index("| ") :].partition("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
    return [lines[0], *lines[2:]]


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_test_rows_of_a_file_of_their_own_are_counted_and_named_by_that_file(
    run_directory: MakeRun, only_sections: Callable[..., None], task: str
) -> None:
    only_sections("quality", "failures", "data")
    paths = run_directory(task=task, repeats=1)
    before = {name: table_of(texts(paths)[1], name) for name in ("### Where trees", "### The most wrong")}
    schema = read_schema(paths)
    held_out = {"test": HeldOut(table="there/test.csv", first=1)}
    write_json(paths.schema, schema.model_copy(update={"held_out": held_out}))
    page, markdown = texts(paths)
    assert "- rows: 800 and 400 test rows of test.csv (12 refused: no target value)" in markdown
    assert "rows: 800 and 400 test rows of test.csv (12 refused: no target value)." in page
    for heading, lines in before.items():
        found = table_of(markdown, heading)
        assert lines[0][0] == "row" and found[0][0] == "row of test.csv"
        assert [int(line[0]) for line in found[1:]] == [int(line[0]) - 1 for line in lines[1:]]
    assert "A row's number counts from 0; its row_id in table/ is 1 more." in page


def test_a_boolean_has_its_words_and_not_numbers(
    run_directory: MakeRun, only_sections: Callable[..., None]
) -> None:
    only_sections("failures")
    paths = run_directory(task="regression", rows=2000, repeats=1, more_features=1)
    schema = read_schema(paths)
    as_boolean = [
        one.model_copy(update={"reading": "boolean"}) if one.name == "more_0" else one
        for one in schema.features
    ]
    write_json(paths.schema, schema.model_copy(update={"features": tuple(as_boolean)}))
    with_column(paths, "more_0", lambda label_N: label_N > 120)
    with_column(paths, "label", lambda label_N: label_N + 60 * (label_N > 120))
    page, markdown = texts(paths)
    assert " more_0 = true " in page and "more_0 from" not in page
    heading, *rows = table_of(markdown, "### The most wrong")
    assert {row[heading.index("more_0")] for row in rows} == {"true"}


def test_thousands_are_separated_alike_and_differences_have_as_many_digits_as_they_need(
    run_directory: MakeRun, only_sections: Callable[..., None]
) -> None:
    only_sections("result", "failures")
    paths = run_directory(task="regression", repeats=1)
    with_column(paths, "label", lambda label_N: 1000 + label_N.round(3))
    found = read_results(paths)
    blend = found.models[-1].model_copy(update={"gains": {"trees": 1762.9923, "neural": 0.00731234}})
    write_results(paths, found.model_copy(update={"models": (*found.models[:-1], blend)}))
    _, markdown = texts(paths)
    gains = {row[0]: row[2] for row in table_of(markdown, "| member of the blend")[1:]}
    assert gains == {"trees": "+1,763", "neural": "+0.00731"}
    for row in table_of(markdown, "### The most wrong")[1:]:
        assert re.fullmatch(r"\d,\d{3}(\.\d+)?", row[1])
        assert re.fullmatch(r"[+−]\d(,\d)?\d\d(\.\d+)?", row[3])
