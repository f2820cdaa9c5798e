"""The user's own validation and test rows, in tables beside the source."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from ways import WAYS, by_ways

from sparkgpu.core.errors import DataError


def rows(number: int, start: int = 0) -> pd.DataFrame:
    row_N = np.arange(start, start + number)
    return pd.DataFrame(
        {"x": row_N * 1.5, "word": [f"w{row % 3}" for row in row_N], "day": row_N, "y": row_N % 2}
    )


@pytest.fixture
def file(tmp_path):
    def write(frame: pd.DataFrame, name: str) -> str:
        path = tmp_path / name
        if path.suffix.lower() == ".parquet":
            frame.to_parquet(path, index=False)
        elif path.suffix.lower() == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_json(path, orient="records", lines=True)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("own", "others", "by"),
    by_ways(("parquet", "parquet"), ("csv", "csv"), ("parquet", "csv"), ("csv", "jsonl")),
)
def test_all_rows_of_the_files_are_tested_and_validated_and_no_others(prepare, file, by, own, others):
    source = file(rows(60), f"train.{own}")
    test, valid = file(rows(20, 100), f"a-test.{others}"), file(rows(10, 200), f"valid.{others}")
    given = {"data.test": test, "data.valid": valid}
    found = prepare(source, "y", given, by=by)
    stored = found.stored()
    assert (
        found.schema.rows_text
        == f"60 and 10 valid rows of valid.{others} and 20 test rows of a-test.{others}"
    )
    assert {split: table.first for split, table in found.schema.held_out.items()} == {"valid": 60, "test": 70}
    assert Counter(stored.split) == {"train": 60, "valid": 10, "test": 20}
    days = {name: sorted(part.day) for name, part in stored.groupby("split")}
    assert days == {"train": [*range(60)], "valid": [*range(200, 210)], "test": [*range(100, 120)]}
    assert list(stored[stored.split == "valid"].index) == [*range(60, 70)]


@pytest.mark.parametrize(("ending", "by"), by_ways(("parquet",), ("jsonl",), ("csv",)))
def test_folders_are_read_by_their_data_files_whatever_lies_beside_them(prepare, file, tmp_path, by, ending):
    for name, begin in (("train", 0), ("test", 100)):
        (tmp_path / name / "a").mkdir(parents=True)
        for part in range(2):
            file(rows(30, begin + 30 * part), f"{name}/a/{part}.{ending.upper()}")
        (tmp_path / name / "README.md").write_text("day,y\nnot a row")
    found = prepare(tmp_path / "train", "y", {"data.test": str(tmp_path / "test")}, by=by)
    assert found.schema.rows == 120 and found.schema.splits["test"] == 60
    passed_over = [note for note in found.schema.notes if "README.md" in note]
    assert len(passed_over) == 2 and "test" in passed_over[1]


@pytest.mark.parametrize("options", [{}, {"split.kind": "time", "split.column": "day"}, {"split.folds": 3}])
def test_what_no_file_holds_is_cut_from_the_source(prepare, file, options):
    source, test = file(rows(100), "a.parquet"), file(rows(30, 500), "b.parquet")
    stored = prepare(source, "y", {"data.test": test, "split.valid": 0.2, **options}).stored()
    found = Counter(stored.split)
    assert found["test"] == 30 and (stored[stored.split == "test"].day >= 500).all()
    assert found["valid"] == (0 if "split.folds" in options else 20)
    if options.get("split.kind") == "time":
        assert sorted(stored[stored.split == "valid"].day) == [*range(80, 100)]
    stored = prepare(source, "y", {"data.valid": test, "split.test": 0.1}).stored()
    assert Counter(stored.split) == {"train": 90, "valid": 30, "test": 10}


@pytest.mark.parametrize("by", WAYS)
def test_numbers_are_as_wide_as_both_files_need(prepare, file, by):
    wide = rows(20, 100).assign(day=lambda found: found.day + 0.5)
    given = {"data.test": file(wide, "wide.parquet")}
    stored = prepare(file(rows(60), "a.parquet"), "y", given, by=by).stored()
    assert sorted(stored[stored.split == "test"].day) == sorted(wide.day)


def test_a_column_without_a_value_in_the_test_rows_is_missing_there(prepare, file):
    given = {"data.test": file(rows(20).assign(x=None), "gaps.csv")}
    stored = prepare(file(rows(60), "a.csv"), "y", given).stored()
    assert stored[stored.split == "test"].x.isna().all() and stored[stored.split == "train"].x.notna().all()


@pytest.mark.parametrize(
    ("change", "words", "by"),
    by_ways(
        (lambda test: test.drop(columns="x"), "lacks x"),
        (lambda test: test.assign(x="much"), "column 'x'"),
        (lambda test: test.assign(y=2), "no model can learn it"),
    ),
)
def test_rows_that_do_not_fit_the_source_are_refused(prepare, file, by, change, words):
    given = {"data.test": file(change(rows(20)), "test.csv")}
    with pytest.raises(DataError, match=words):
        prepare(file(rows(60), "a.csv"), "y", given, by=by)


def test_columns_that_are_ignored_may_be_absent_and_others_may_be_added(prepare, file):
    test = file(rows(20).drop(columns="x").assign(more=1), "test.csv")
    found = prepare(file(rows(60), "a.csv"), "y", {"data.test": test, "data.ignore": ["x"]})
    assert not {"x", "more"} & set(found.kinds) and found.schema.splits["test"] == 20
