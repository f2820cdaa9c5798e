"""Which rows are trained on, validated on and tested on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def split(prepare):
    """The prepared rows of these labels and columns, by id; options are those of ``[split]``."""

    def run(label, columns=None, **options):
        columns = columns or {}
        rows = {"x": np.random.default_rng(0).normal(size=len(label)), **columns, "y": label}
        found = prepare(rows, "y", {f"split.{key}": value for key, value in options.items()})
        return found.stored().assign(**columns)

    return run


LABELS = np.repeat([0, 1, 2, 3, 4], [700, 60, 13, 3, 2])


@pytest.mark.parametrize(("test", "valid", "most_off"), [(0.2, 0.1, 1), (0.5, 0.45, 1.5)])
def test_each_class_is_shared_out_to_within_a_row_and_is_trained_on(split, test, valid, most_off):
    found = split(LABELS, test=test, valid=valid)
    for code, rows in enumerate(np.bincount(LABELS)):
        own = Counter(found.split[found.label == code])
        assert abs(own["test"] - test * rows) <= 1 and abs(own["valid"] - valid * rows) <= most_off
        assert own["train"] >= 1


def test_a_regression_is_cut_at_exact_shares(split):
    found = Counter(split(np.linspace(0, 1, 200), test=0.25, valid=0.1).split)
    assert found == {"test": 50, "valid": 20, "train": 130}


def test_the_latest_rows_are_tested_and_the_ones_before_them_validate(split):
    places = np.random.default_rng(0).permutation(100)
    dates = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(places, unit="D"))
    for column in (places, dates, dates.dt.strftime("%Y-%m-%d")):
        found = split(np.arange(100.0), {"t": column}, kind="time", column="t", test=0.2, valid=0.1)
        assert set(places[found.split == "test"]) == set(range(80, 100))
        assert set(places[found.split == "valid"]) == set(range(70, 80))


@pytest.mark.parametrize("rows", [(30, 30, 30), (80, 5, 5), (5, 5, 80)])
def test_a_few_timestamps_or_groups_are_shared_out_whole(split, rows):
    years = np.repeat([2021, 2022, 2023], rows)
    found = split(np.arange(90.0), {"t": years}, kind="time", column="t")
    assert found.groupby("t").split.unique().map(list).to_dict() == {
        2021: ["train"], 2022: ["valid"], 2023: ["test"],
    }  # fmt: skip
    found = split(np.arange(90.0), {"g": years}, kind="group", column="g")
    assert sorted(found.groupby("g").split.unique().map(tuple)) == [("test",), ("train",), ("valid",)]


def test_no_group_is_on_two_sides(split):
    groups = np.random.default_rng(1).integers(0, 60, size=600).astype(str)
    folded = split(np.arange(600.0), {"g": groups}, kind="group", column="g", folds=3)
    assert (folded.groupby("g")[["split", "fold"]].nunique(dropna=False) == 1).all(axis=None)
    whole = split(np.arange(600.0), {"g": groups}, kind="group", column="g")
    assert (whole.groupby("g").split.nunique() == 1).all()
    assert 0.1 < (whole.split == "test").mean() < 0.22


@pytest.mark.parametrize(
    ("options", "column", "words"),
    [
        ({"kind": "group"}, [1, 2] * 10, "holds 2 different values; train, valid and test need 3"),
        ({"kind": "group", "folds": 5}, [1, 2, 3, 4] * 5, "5 folds, beside test, need 5, one each"),
        ({"kind": "time"}, [1] * 20, "holds 1 different values"),
        ({"kind": "time"}, [None, 2.0] * 10, "10 rows have no time there"),
        ({"kind": "time"}, ["2024-01-31", "b"] * 10, "10 rows have no time there"),
        ({"kind": "time"}, [True, False] * 10, "is of type boolean; a split by time needs dates"),
        ({"kind": "group"}, [[1], [2]] * 10, "is of type array<bigint>, which cannot name groups"),
        ({"kind": "column"}, [1, 2] * 10, "is of type bigint; it may hold only the texts train, valid and"),
        ({"kind": "column"}, ["train", "tset"] * 10, "holds 'tset'; it may hold only train, valid and test"),
        ({"kind": "column"}, ["train", None] * 10, "holds null; it may hold only train, valid and test"),
        ({"kind": "column"}, ["train", "valid"] * 10, "marks no row as test"),
    ],
)
def test_a_column_that_cannot_split_is_refused(split, refused, options, column, words):
    assert words in refused(split, np.arange(20) / 2, {"c": column}, column="c", **options)


def test_a_column_of_words_splits_in_any_case(split):
    words = np.array(["Train", " TEST", "valid", "train"] * 10)
    found = split(np.arange(40.0), {"c": words}, kind="column", column="c")
    assert found.split.tolist() == ["train", "test", "valid", "train"] * 10


def test_where_no_row_is_marked_valid_a_share_of_train_is_taken(split):
    words = np.array(["train", "train", "train", "test"] * 30)
    found = split(np.array([0, 1, 0, 1] * 30), {"c": words}, kind="column", column="c", test=0.2, valid=0.2)
    assert ((found.c == "test") == (found.split == "test")).all()
    for code, rows in ((0, 60), (1, 30)):
        own = found[(found.label == code) & (found.split == "valid")]
        assert abs(len(own) - 0.25 * rows) <= 1


@pytest.mark.parametrize("exact_rows", [None, 100])
def test_folds_hold_each_class_evenly_also_where_it_is_too_large_to_sort(split, monkeypatch, exact_rows):
    if exact_rows:
        monkeypatch.setattr("sparkgpu.prepare.split._EXACT_ROWS", exact_rows)
    found = split(LABELS[:773], folds=4)
    assert set(found.split) == {"train", "test"}
    assert abs((found.split == "test").mean() - 0.15) < 0.04
    counts = found[found.split == "train"].groupby(["label", "fold"]).size().unstack()
    assert counts.columns.tolist() == [0, 1, 2, 3]
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
