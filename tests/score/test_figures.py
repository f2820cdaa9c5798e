"""The figures of the columns: those of the training rows, in the user's terms, for any values."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.profile import TableProfile
from sparkgpu.score.profile import sample as sampling
from sparkgpu.score.profile import write_profile

ROWS = 3_000
MakeTable = Callable[..., RunPaths]


def frame(rows: int = ROWS) -> pd.DataFrame:
    random = np.random.default_rng(0)
    x_N = random.normal(size=rows)
    return pd.DataFrame(
        {
            "x": x_N,
            "falling": -(x_N**3),
            "alone": random.normal(size=rows),
            "word": np.where(x_N > 0, "up", "down"),
            "many": random.integers(0, 300, rows).astype(str),
            "y": 2 * x_N + 0.5 * random.normal(size=rows),
        }
    ).assign(word=lambda f: f["word"].where(random.random(rows) > 0.25))


def test_the_figures_of_a_number_are_those_of_the_training_rows(table: MakeTable) -> None:
    rows = frame()
    split_N = np.array(["train", "train", "valid", "test"] * (ROWS // 4))
    paths = table(rows, split_N=split_N)
    found = write_profile(paths)
    x = next(column for column in found.columns if column.column == "x")
    train_N = rows["x"][split_N == "train"].to_numpy(np.float32).astype(float)
    assert x.numbers is not None and x.missing == 0 and x.distinct == len(train_N)
    quartiles = [x.numbers.quartile_1, x.numbers.median, x.numbers.quartile_3]
    assert quartiles == pytest.approx(np.quantile(train_N, [0.25, 0.5, 0.75]).tolist())
    assert x.numbers.mean == pytest.approx(train_N.mean()) and x.numbers.std == pytest.approx(
        train_N.std(ddof=1)
    )
    inner, _ = np.histogram(train_N, np.linspace(x.numbers.low, x.numbers.high, 17))
    assert list(x.numbers.counts[1:-1]) == inner[1:-1].tolist() and sum(x.numbers.counts) == len(train_N)
    assert {name: (split.rows, split.looked_at) for name, split in found.splits.items()} == {
        "train": (1500, 1500), "valid": (750, 750), "test": (750, 750),
    }  # fmt: skip
    assert read_record(paths.profile, TableProfile) == found


def test_levels_and_gaps_of_a_category_are_shares_of_training_rows(table: MakeTable) -> None:
    rows = frame()
    paths = table(rows, split_N=np.where(np.arange(ROWS) < 2_000, "train", "test"))
    found = {column.column: column for column in write_profile(paths).columns}
    word = rows["word"][:2_000]
    assert found["word"].missing == pytest.approx(word.isna().mean()) and found["word"].distinct == 2
    shares = word.value_counts(normalize=True)
    assert {level.level: level.share for level in found["word"].levels} == pytest.approx(shares.to_dict())
    assert found["many"].distinct == rows["many"][:2_000].nunique() and len(found["many"].levels) == 8


def test_associations_are_one_for_what_belongs_together_and_near_zero_for_what_does_not(
    table: MakeTable,
) -> None:
    found = write_profile(table(frame())).associations
    value = {
        (a, b): found.values[i][j] for i, a in enumerate(found.columns) for j, b in enumerate(found.columns)
    }
    assert found.columns == ("x", "falling", "alone", "word", "many", "y")
    assert value["x", "falling"] == pytest.approx(1.0) and value["x", "y"] == value["y", "x"] > 0.95
    assert value["x", "word"] == pytest.approx(np.sqrt(0.75), abs=0.02)  # two halves of uniform ranks
    assert value["alone", "y"] < 0.05 and value["many", "y"] < 0.15 and value["many", "word"] < 0.15


def test_what_a_feature_explains_alone_is_measured_on_test_rows(table: MakeTable) -> None:
    found = {column.column: column.alone for column in write_profile(table(frame())).columns}
    assert found["x"] == pytest.approx(1 - 0.25 / 4.25, abs=0.02)  # the noise's part of the variance
    assert found["falling"] == pytest.approx(found["x"], abs=0.02)
    assert -0.1 < found["alone"] < 0.02
    assert -0.2 < found["many"] < 0.02  # levels of ten rows each, smoothed


def test_of_many_columns_the_thirty_that_belong_to_the_target_most_are_compared(
    table: MakeTable,
) -> None:
    random = np.random.default_rng(1)
    rows = pd.DataFrame(random.normal(size=(500, 60)), columns=[f"c{place}" for place in range(60)])
    rows["y"] = rows["c40"] + rows["c7"] + random.normal(size=500)
    found = write_profile(table(rows))
    assert len(found.columns) == 60 and len(found.associations.columns) == 31
    assert {"c7", "c40"} < set(found.associations.columns) and found.associations.columns[-1] == "y"


def test_a_large_table_is_looked_at_in_part_and_the_profile_says_so(
    table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_LOOKED_AT", {"train": 1_000, "valid": 100, "test": 1_000})
    monkeypatch.setattr(sampling, "_MOST_READ_ROWS", 1_000)
    rows = frame(4_000)
    split_N = np.where(np.arange(4_000) < 2_500, "train", "test")
    rows.iloc[2_500:2_800] = rows.iloc[:300]
    found = write_profile(table(rows, split_N=split_N, group_rows=500))
    train, test = found.splits["train"], found.splits["test"]
    assert (train.rows, train.looked_at) == (2_500, 1_000)
    assert (test.rows, test.looked_at) == (1_500, 1_000)
    (copies,) = (check for check in found.checks if check.name == "duplicates across splits")
    assert not copies.passed and "(of 1,000 of 2,500 that were looked at)" in copies.evidence


def test_rows_are_equal_whatever_the_sign_of_zero_and_the_kind_of_missing(table: MakeTable) -> None:
    zeros = pd.DataFrame({"a": [0.0, -0.0] * 40, "b": [np.nan] * 80, "y": np.arange(80) / 7})
    paths = table(zeros, split_N=np.array(["train", "test"] * 40))
    (copies,) = (check for check in write_profile(paths).checks if check.name == "duplicates across splits")
    assert copies.evidence.startswith("40 of 40 test rows (100.0 %)")


def test_infinite_empty_and_constant_columns_have_figures_that_are_json(table: MakeTable) -> None:
    rows = frame(400).assign(infinite=np.inf, empty=np.nan, same=3.0)
    rows.loc[::2, "infinite"] = 1.5
    paths = table(rows, split_N=np.array(["train", "valid", "test", "train"] * 100))
    found = {column.column: column for column in write_profile(paths).columns}
    assert found["empty"].numbers is None and found["empty"].missing == 1
    assert found["empty"].with_target is None
    assert found["same"].numbers is not None and found["same"].numbers.std == 0
    assert sum(found["same"].numbers.counts) == 200
    json.loads(paths.profile.read_text(), parse_constant=pytest.fail)


def test_a_table_with_folds_and_no_validation_rows_is_profiled(table: MakeTable) -> None:
    paths = table(frame(), split_N=np.where(np.arange(ROWS) % 4 == 0, "test", "train"))
    found = write_profile(paths)
    assert set(found.splits) == {"train", "test"} and all(check.passed for check in found.checks)
