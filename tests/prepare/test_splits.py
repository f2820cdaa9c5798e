"""Which rows are trained on, validated on and tested on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sparkgpu.config.keys import SplitConfig
from sparkgpu.prepare.column_types import spark_type
from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.split import (
    SPLITS,
    LookAtSplit,
    SplitRule,
    check_split_column,
    exact_classes,
    fitted_rule,
)
from sparkgpu.prepare.target import Target

SPLIT, FOLD, LABEL = "split", "fold", "label"


@pytest.fixture
def split():
    """Rows by id with their split, from labels (class codes or values) and other columns."""

    def run(label, *, seed=7, partitions=2, folds=None, columns=None, **options):
        label = np.asarray(label)
        classes = np.bincount(label) if label.dtype.kind == "i" else ()
        frame = pd.DataFrame({ROW_ID: np.arange(len(label)), LABEL: label, **(columns or {})})
        table = pa.Table.from_pandas(frame, preserve_index=False)
        config = SplitConfig(folds=folds, **options)
        target = Target(
            column=LABEL, type="bigint" if len(classes) else "double",
            task="multiclass" if len(classes) else "regression",
            classes=tuple(map(str, range(len(classes)))), class_rows=tuple(map(int, classes)),
            rows=len(label), rows_refused=0,
        )  # fmt: skip
        kinds = {field.name: spark_type(field.type) for field in table.schema}
        check_split_column(config, kinds)
        kind = kinds[config.column] if config.column else ""
        rule = SplitRule(config=config, kind=kind, seed=seed, target=target)
        stratified = config.kind in ("random", "column")
        class_rows = target.rows_by_class if stratified else dict.fromkeys(target.rows_by_class, 0)
        look = LookAtSplit(rule=rule, weight=None, exact=exact_classes(config, class_rows))
        size = -(-len(label) // partitions)
        parts = [table.slice(begin, size).to_batches() for begin in range(0, len(label), size)]
        found, *others = map(look, parts)
        for other in others:
            found.merge(other)
        fitted = fitted_rule(rule, found, class_rows)
        names = {code: name for name, code in SPLITS.items()}
        assigned = [fitted.assigned(batch) for part in parts for batch in part]
        frame[SPLIT] = [names[code] for one in assigned for code in one.split_N.tolist()]
        if folds:
            frame[FOLD] = np.concatenate([one.fold_N for one in assigned])
        return frame

    return run


LABELS = np.repeat([0, 1, 2, 3, 4], [700, 60, 13, 3, 2])


def test_each_class_is_shared_out_to_within_one_row_and_is_trained_on(split):
    found = split(LABELS, test=0.2, valid=0.1)
    for code, rows in enumerate(np.bincount(LABELS)):
        own = Counter(found[SPLIT][found[LABEL] == code])
        assert abs(own["test"] - 0.2 * rows) <= 1 and abs(own["valid"] - 0.1 * rows) <= 1
        assert own["train"] >= 1


def test_even_large_shares_leave_a_row_of_each_class_to_train_on(split):
    found = split(LABELS, test=0.5, valid=0.45)
    assert set(found[LABEL][found[SPLIT] == "train"]) == set(range(5))


def test_a_regression_is_cut_at_exact_shares(split):
    found = Counter(split(np.linspace(0, 1, 200), test=0.25, valid=0.1)[SPLIT])
    assert found == {"test": 50, "valid": 20, "train": 130}


def test_the_seed_decides_and_the_partitioning_does_not(split):
    first = split(LABELS)[SPLIT]
    assert split(LABELS, partitions=7)[SPLIT].equals(first)
    assert (split(LABELS, seed=8)[SPLIT] != first).mean() > 0.2


def test_the_latest_rows_are_tested_and_the_ones_before_them_validate(split):
    timestamps = np.random.default_rng(0).permutation(100)
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(timestamps, unit="D")
    for column in (timestamps, dates):
        found = split(np.arange(100.0), columns={"t": column}, kind="time", column="t", test=0.2, valid=0.1)
        assert set(timestamps[found[SPLIT] == "test"]) == set(range(80, 100))
        assert set(timestamps[found[SPLIT] == "valid"]) == set(range(70, 80))


def test_a_few_timestamps_or_groups_are_shared_out_whole(split):
    years = np.repeat([2021, 2022, 2023], 30)
    found = split(np.arange(90.0), columns={"t": years}, kind="time", column="t")
    assert found.groupby("t")[SPLIT].unique().map(list).to_dict() == {
        2021: ["train"], 2022: ["valid"], 2023: ["test"],
    }  # fmt: skip
    found = split(np.arange(90.0), columns={"g": years}, kind="group", column="g")
    assert sorted(found.groupby("g")[SPLIT].unique().map(tuple)) == [("test",), ("train",), ("valid",)]


def test_no_group_is_on_two_sides(split):
    groups = np.random.default_rng(1).integers(0, 60, size=600).astype(str)
    found = split(np.arange(600.0), columns={"g": groups}, kind="group", column="g", folds=3)
    assert (found.groupby("g")[[SPLIT, FOLD]].nunique(dropna=False) == 1).all(axis=None)
    whole = split(np.arange(600.0), columns={"g": groups}, kind="group", column="g")
    assert (whole.groupby("g")[SPLIT].nunique() == 1).all()
    assert 0.1 < (whole[SPLIT] == "test").mean() < 0.22


@pytest.mark.parametrize(
    ("options", "column", "words"),
    [
        ({"kind": "group"}, [1, 2] * 10, "holds 2 different values; train, valid and test need 3"),
        ({"kind": "group", "folds": 5}, [1, 2, 3, 4] * 5, "5 folds, beside test, need 5, one each"),
        ({"kind": "time"}, [1] * 20, "holds 1 different values"),
        ({"kind": "time"}, [None, 2.0] * 10, "10 rows have no value there"),
        ({"kind": "time"}, ["a", "b"] * 10, "is of type string; a split by time needs a date"),
        ({"kind": "column"}, ["train", "tset"] * 10, "holds 'tset'; it may hold only train, valid and test"),
        ({"kind": "column"}, ["train", None] * 10, "holds null; it may hold only train, valid and test"),
        ({"kind": "column"}, ["train", "valid"] * 10, "marks no row as test"),
    ],
)
def test_a_column_that_cannot_split_is_refused(split, refused, options, column, words):
    assert words in refused(split, np.arange(20.0), columns={"c": column}, column="c", **options)


def test_a_column_of_words_splits_in_any_case(split):
    words = np.array(["Train", " TEST", "valid", "train"] * 10)
    found = split(np.arange(40.0), columns={"c": words}, kind="column", column="c")
    assert found[SPLIT].tolist() == ["train", "test", "valid", "train"] * 10


def test_where_no_row_is_marked_valid_a_share_of_train_is_taken(split):
    words = np.array(["train", "train", "train", "test"] * 30)
    labels = np.array([0, 1, 0, 1] * 30)
    found = split(labels, columns={"c": words}, kind="column", column="c", test=0.2, valid=0.2)
    assert ((found["c"] == "test") == (found[SPLIT] == "test")).all()
    for code, rows in ((0, 60), (1, 30)):
        own = found[(found[LABEL] == code) & (found[SPLIT] == "valid")]
        assert abs(len(own) - 0.25 * rows) <= 1


def test_each_row_that_is_not_tested_is_in_one_fold_and_folds_hold_the_classes(split):
    found = split(LABELS[:773], folds=4)
    assert set(found[SPLIT]) == {"train", "test"}
    rest = found[found[SPLIT] == "train"]
    counts = rest.groupby([LABEL, FOLD]).size().unstack()
    assert counts.columns.tolist() == [0, 1, 2, 3]
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()


def test_folds_of_a_class_too_large_to_sort_are_even(split, monkeypatch):
    from sparkgpu.prepare import split as module

    monkeypatch.setattr(module, "_EXACT_ROWS", 100)
    found = split(np.repeat([0, 1], 1000), folds=4)
    assert abs((found[SPLIT] == "test").mean() - 0.15) < 0.04
    counts = found[found[SPLIT] == "train"].groupby([LABEL, FOLD]).size().unstack()
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
