"""The rules for columns, names and shares on plain figures; no JVM."""

from __future__ import annotations

import sys

import pytest

from sparkgpu.prepare.columns import ROW_ID, own_columns, refuse_reserved
from sparkgpu.prepare.roles import (
    ColumnStatistics,
    check_columns,
    decide_roles,
    infer_task,
    safe_names,
    text_reason,
)
from sparkgpu.prepare.split import share_out
from sparkgpu.prepare.sql import quoted
from sparkgpu.table.schema import RESERVED_COLUMNS


def column(kind, *, rows=100, **figures):
    return ColumnStatistics(name="x", type=kind, rows=rows, **{"values": rows, **figures})


def decide(statistics, asked=None):
    kept, dropped = decide_roles([statistics], roles={"x": asked} if asked else {}, ignore=())
    return kept[0].role if kept else dropped[0].reason


@pytest.mark.parametrize(
    ("statistics", "decision"),
    [
        (column("double"), "numeric"),
        (column("decimal(20,0)"), "numeric"),
        (column("boolean"), "boolean"),
        (column("string"), "categorical"),
        (column("string", held="codes"), "categorical"),
        (column("string", held="numbers"), "numeric"),
        (column("string", held="timestamps", parts=("year",)), "timestamp"),
        (column("string", held="timestamps"), "constant: one timestamp in every row that has one"),
        (column("date", parts=("year",)), "timestamp"),
        (column("int", values=0), "no values: every row is null"),
        (column("int", varies=False), "constant: one value in every row"),
        (column("int", varies=False, values=60), "numeric"),
        (column("timestamp"), "constant: one timestamp in every row that has one"),
        (column("array<int>"), "of type array<int>, which holds no single value"),
        (column("interval day to second"), "of type interval day to second, which holds no single value"),
        (column("int", least=1.0, greatest=100.0, whole=True), "id-like: numbers the rows"),
        (column("int", least=1.0, greatest=101.0, whole=True), "numeric"),
        (column("int", least=1.0, greatest=49.0, whole=True, rows=49), "numeric"),
    ],
)
def test_a_column_gets_the_role_its_figures_call_for(statistics, decision):
    assert decide(statistics) == decision


def test_what_the_user_asks_for_goes_first():
    numbered = column("int", least=1.0, greatest=100.0, whole=True)
    assert decide(numbered, "numeric") == "numeric"
    assert decide(numbered, "categorical") == "categorical"
    assert decide(numbered, "ignore") == "ignored in the configuration"
    assert decide(column("string"), "timestamp").startswith("asked to be a timestamp, but")


@pytest.mark.parametrize(
    ("levels", "values", "rows", "reason"),
    [
        (1, 100, 100, "constant: one value in every row"),
        (1, 60, 100, None),
        (0, 0, 100, "no values: every training row is null"),
        (98, 100, 100, "id-like: 98 different texts in 100 rows"),
        (90, 100, 100, None),
        (40, 40, 40, None),
    ],
)
def test_a_text_column_is_judged_by_its_levels(levels, values, rows, reason):
    assert text_reason(levels, values, rows) == reason


def test_codes_that_name_the_rows_may_be_numbers_after_all():
    assert text_reason(98, 100, 100, held="codes") == (
        "id-like: 98 different texts in 100 rows; data.roles can make them numbers"
    )


def test_every_column_the_configuration_names_must_exist(refused):
    columns = {"age": "int", "wage": "double", "when": "array<int>"}

    def check(**options):
        return check_columns(columns, **{"target": "age", "roles": {}, "others": [], **options})

    assert check() == "age"
    assert "Choose the column to predict with --target: age" in refused(check, target=None)
    assert "target 'wages': no such column. Did you mean 'wage'?" in refused(check, target="wages")
    assert "data.ignore 'Age': no such column. Did you mean 'age'?" in refused(
        check, others=[("data.ignore", "Age")]
    )
    wrong_first = {"agee": "numeric", "wage": "numeric"}
    assert "data.roles (numeric) 'agee': no such column" in refused(check, roles=wrong_first)
    text = refused(check, roles={"when": "numeric"})
    assert "'when' is of type array<int> and cannot be read as numeric. Choose ignore." in text


@pytest.mark.parametrize(
    ("target", "num_values", "asked", "task"),
    [
        (column("string"), 3, "auto", "classes"),
        (column("boolean"), 2, "auto", "classes"),
        (column("int", whole=True), 20, "auto", "classes"),
        (column("int", whole=True), 21, "auto", "regression"),
        (column("double", whole=True), 3, "auto", "classes"),
        (column("double"), 3, "auto", "regression"),
        (column("string", held="numbers", whole=True), 3, "auto", "classes"),
        (column("string", held="codes"), 30, "auto", "classes"),
        (column("string", held="numbers"), 3, "auto", "regression"),
        (column("double"), 3, "multiclass", "classes"),
        (column("int", whole=True), 2, "regression", "regression"),
    ],
)
def test_the_task_follows_from_the_target(target, num_values, asked, task):
    assert infer_task(target, num_values, asked) == task


@pytest.mark.parametrize(
    ("target", "asked", "words"),
    [
        (column("int", values=0), "auto", "all 100 rows are null"),
        (column("date"), "auto", "neither classes nor a number"),
        (column("array<int>"), "multiclass", "neither classes nor a number"),
        (column("string"), "regression", "holds no numbers"),
        (column("boolean"), "regression", "holds no numbers"),
    ],
)
def test_a_target_that_cannot_be_learned_is_refused(refused, target, asked, words):
    assert words in refused(infer_task, target, 5, asked)


def test_safe_names_are_plain_unique_and_none_of_ours():
    titles = [
        "a.b", "a b", "a-b", "a/b", "größe", "価格", "$$", "it's", 'say "x"', "back`tick", "Age", "age",
        "AGE", "2nd", "label", "Split", "row_id", "features", "weight", "fold", "f0", "label_2",
        "prediction", "", "a_b",
    ]  # fmt: skip
    names = safe_names(titles)
    assert len({name.casefold() for name in names}) == len(titles)
    assert all(name.isascii() and name.isidentifier() for name in names)
    assert not {name.casefold() for name in names} & set(RESERVED_COLUMNS)
    assert names[:4] == ["a_b", "a_b_2", "a_b_3", "a_b_4"]
    assert names[titles.index("価格")] == "column_6" and names[titles.index("2nd")] == "_2nd"


def test_names_and_texts_are_quoted_for_sql():
    assert quoted("a.`b`") == "`a.``b```"


def test_names_that_begin_like_ours_are_refused(refused):
    assert own_columns(["a", ROW_ID]) == ["a"]
    assert "__sparkgpu_x" in refused(refuse_reserved, "t.csv", ["a", "__sparkgpu_x"])


@pytest.mark.parametrize(
    ("rows", "shares", "ends"),
    [
        ([10, 10, 10], [0.15, 0.3], [1, 2]),
        ([1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [0.2, 0.5], [2, 5]),
        ([90, 5, 5], [0.15, 0.3], [1, 2]),
        ([5, 5, 90], [0.15, 0.3], [1, 2]),
        ([4, 4, 4, 4], [0.25, 0.5, 0.75], [1, 2, 3]),
    ],
)
def test_large_units_are_shared_out_with_one_at_least_on_each_side(rows, shares, ends):
    assert share_out(rows, shares) == ends


def test_these_rules_need_no_spark():
    import subprocess

    code = (
        "import sys; import sparkgpu.prepare.prepare, sparkgpu.prepare.spark_source, sparkgpu.lanes.worker; "
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
