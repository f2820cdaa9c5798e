"""Checks of a table: planted faults are named, with their column, and clean tables raise no alarm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.profile import CheckResult
from sparkgpu.core.table.schema import OTHER_LEVEL
from sparkgpu.score.profile import write_profile

ROWS = 4_000
MakeTable = Callable[..., RunPaths]


def clean(task: str = "binary", rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Numbers and a category that explain some of the target, and some that do not."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": random.normal(size=rows),
            "age": random.integers(18, 80, rows).astype(float),
            "noise": random.normal(size=rows),
            "shop": random.choice(["north", "south", "west"], rows, p=[0.5, 0.3, 0.2]),
        }
    )
    frame.loc[random.random(rows) < 0.1, "age"] = np.nan
    value = frame["income"] + (frame["shop"] == "south") + 0.02 * frame["age"].fillna(40)
    value = value + random.normal(size=rows)
    if task == "binary":
        frame["y"] = np.where(value > value.median(), "late", "early")
    elif task == "multiclass":
        frame["y"] = np.array(list("abc"))[np.searchsorted(np.quantile(value, [0.3, 0.7]), value)]
    else:
        frame["y"] = value
    return frame


def checks(paths: RunPaths) -> dict[str, CheckResult]:
    return {check.name: check for check in write_profile(paths).checks}


def failed(paths: RunPaths) -> dict[str, tuple[str, ...]]:
    """The columns of each failed check."""
    return {name: check.columns for name, check in checks(paths).items() if not check.passed}


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_a_clean_table_raises_no_alarm(table: MakeTable, task: str) -> None:
    assert failed(table(clean(task))) == {}


@pytest.mark.parametrize("seed", range(4))
def test_a_small_clean_table_raises_no_alarm_by_chance(table: MakeTable, seed: int) -> None:
    assert failed(table(clean("multiclass", 150, seed))) == {}


def blurred(frame: pd.DataFrame, share: float) -> pd.Series:
    """The target with noise of this share of its deviation."""
    return frame["y"] + share * frame["y"].std() * np.random.default_rng(1).normal(size=len(frame))


def flipped(frame: pd.DataFrame) -> pd.Series:
    """The classes, of which one in a hundred is drawn anew."""
    random = np.random.default_rng(1)
    return "code " + pd.Series(
        np.where(random.random(len(frame)) < 0.01, random.permutation(frame["y"]), frame["y"])
    )


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
@pytest.mark.parametrize("first", [True, False])
def test_a_planted_leak_is_named(table: MakeTable, task: str, first: bool) -> None:
    frame = clean(task)
    noisy = blurred(frame, 0.05) if task == "regression" else flipped(frame)
    for planted in (noisy, 3 * frame["y"].rank(method="first") + 7):
        columns = ["result", *frame.columns] if first else [*frame.columns, "result"]
        found = checks(table(frame.assign(result=planted)[columns]))["leakage"]
        assert not found.passed and found.columns == ("result",)
        assert found.evidence.startswith(
            "Alone, these explain nearly all of the target on the test rows: result ("
        )


def test_a_copy_of_the_target_is_named_in_a_table_of_few_rows(table: MakeTable) -> None:
    frame = clean("regression", rows=150)
    frame["y"] = np.exp(frame["y"])
    result = 1e-3 * frame["y"] + 5
    for planted in (result, result.where(np.arange(150) % 50 > 0)):
        assert checks(table(frame.assign(result=planted)))["leakage"].columns == ("result",)


def test_a_weaker_leak_is_one_only_beside_a_best_model_that_is_not_much_better(table: MakeTable) -> None:
    frame = clean("regression")
    noise, frame = 0.25 * frame["y"].std(), frame.assign(result=blurred(frame, 0.25))
    assert failed(table(frame)) == {}
    found = checks(table(frame, best={"rmse": 0.9 * noise}))["leakage"]
    assert found.columns == ("result",)
    assert found.evidence.endswith(
        "the best model of the run has 0.3422. Each may hold the target, or be known only after it."
    )
    found = checks(table(frame, best={"rmse": 0.4 * noise}))["leakage"]
    assert found.passed and "is result, with RMSE 0.3" in found.evidence


def test_noise_beside_a_hopeless_target_is_no_leak(table: MakeTable) -> None:
    frame = clean("binary").drop(columns=["income", "shop", "age"])
    assert failed(table(frame, best={"roc_auc": 0.501, "accuracy": 0.5})) == {}


def in_test(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    split_N = np.random.default_rng(9).choice(("train", "valid", "test"), len(frame), p=(0.7, 0.15, 0.15))
    return split_N, split_N == "test"


def test_planted_drift_is_named_for_numbers_levels_missing_values_and_the_target(table: MakeTable) -> None:
    frame = clean()
    split_N, is_test_N = in_test(frame)
    moved = frame.assign(noise=frame["noise"] + 0.5 * is_test_N)
    assert failed(table(moved, split_N=split_N)) == {"drift between splits": ("noise",)}
    closed = frame.assign(shop=frame["shop"].where(~is_test_N | (frame["shop"] != "west"), "north"))
    assert failed(table(closed, split_N=split_N)) == {"drift between splits": ("shop",)}
    random = np.random.default_rng(2).random(len(frame))
    lost = frame.assign(income=frame["income"].where(~is_test_N | (random > 0.2)))
    found = checks(table(lost, split_N=split_N))["drift between splits"]
    assert found.columns == ("income",) and "income (test: missing values differ by 0.21)" in found.evidence
    target = clean("regression")
    target["y"] += 1.0 * is_test_N
    assert failed(table(target, split_N=split_N))["drift between splits"] == ("y",)


def test_levels_that_only_other_splits_have_are_no_drift_where_levels_are_many(table: MakeTable) -> None:
    frame = clean()
    frame["tail"] = (np.random.default_rng(6).zipf(1.2, ROWS) % 3_000).astype(str)
    split_N, is_test_N = in_test(frame)
    unseen = ~frame["tail"][is_test_N].isin(set(frame["tail"][split_N == "train"]))
    assert unseen.mean() > 0.1 and failed(table(frame, split_N=split_N)) == {}
    # Levels beyond the cap are one level, and training rows chose those that are kept.
    frame["tail"] = np.random.default_rng(6).integers(0, 4 * ROWS, ROWS).astype(str)
    kept = frame["tail"][split_N == "train"].value_counts().index[: ROWS // 3]
    frame["tail"] = frame["tail"].where(frame["tail"].isin(kept), OTHER_LEVEL)
    share, in_train = (
        (frame["tail"][rows_N] == OTHER_LEVEL).mean() for rows_N in (is_test_N, split_N == "train")
    )
    assert share - in_train > 0.2 and "drift between splits" not in failed(table(frame, split_N=split_N))


def test_a_sure_but_small_shift_of_a_large_table_is_no_drift(table: MakeTable) -> None:
    frame = clean(rows=60_000)
    split_N, is_test_N = in_test(frame)
    frame["noise"] += 0.1 * is_test_N
    assert failed(table(frame, split_N=split_N)) == {}


def test_test_rows_copied_from_training_rows_are_counted(table: MakeTable) -> None:
    frame = clean()
    split_N, is_test_N = in_test(frame)
    random = np.random.default_rng(3)
    copied = random.choice(np.flatnonzero(is_test_N), 60, replace=False)
    frame.iloc[copied] = frame.iloc[random.choice(np.flatnonzero(split_N == "train"), 60)]
    found, rows = checks(table(frame, split_N=split_N))["duplicates across splits"], is_test_N.sum()
    assert not found.passed
    assert found.evidence == (
        f"60 of {rows} test rows ({6000 / rows:.1f} %) have all features of a training row; 100.0 % of them "
        "have its label too."
    )


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_a_table_with_copies_of_its_own_rows_is_named(table: MakeTable, task: str) -> None:
    frame = clean(task)
    twice = pd.concat([frame, frame.sample(frac=0.1, random_state=1)], ignore_index=True)
    assert failed(table(twice)) == {"duplicates across splits": ()}


def test_rows_of_few_coarse_features_repeat_without_an_alarm(table: MakeTable) -> None:
    random = np.random.default_rng(4)
    frame = pd.DataFrame({f"answer {place}": random.choice(list("abcd"), ROWS) for place in range(6)})
    frame["y"] = np.where((frame["answer 0"] == "a") ^ (random.random(ROWS) < 0.1), "yes", "no")
    found = checks(table(frame))["duplicates across splits"]
    assert found.passed and "repeat, as by chance" in found.evidence
    assert float(found.evidence.split("(")[1].split(" %")[0]) > 30


def test_ids_are_named_and_amounts_are_not(table: MakeTable) -> None:
    random = np.random.default_rng(5)
    frame = clean()
    frame["customer"] = random.choice(10**6, ROWS, replace=False)
    frame["running"] = np.arange(ROWS) * 3 + random.integers(0, 3, ROWS)
    frame["amount"] = np.round(1e5 * np.exp(frame["income"])).astype(int)
    assert failed(table(frame)) == {"id-like columns": ("customer", "running")}


def test_gaps_and_rare_classes_are_named(table: MakeTable) -> None:
    frame = clean("multiclass")
    split_N, _ = in_test(frame)
    frame["y"] = frame["y"].where(np.arange(ROWS) % 900 != 5, "rare")
    frame["pool"] = np.where(np.arange(ROWS) % 300 == 0, 1.0, np.nan)
    found = checks(table(frame, split_N=split_N))
    assert found["gaps"].columns == ("pool",) and "pool (99.7 %)" in found["gaps"].evidence
    rare = int(((frame["y"] == "rare") & (split_N == "train")).sum())
    assert not found["rare classes"].passed
    assert f"Fewer than 10 training rows: rare ({rare})." in found["rare classes"].evidence


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("adult", "income"), ("ames_housing", "Sale_Price"), ("california_housing", "MedHouseVal"),
        ("covertype", "Cover_Type"), ("diamonds", "price"), ("german_credit", "credit_risk"),
        ("letter", "target"), ("nycflights_delay", "arr_delay"), ("penguins", "species"),
    ],
)  # fmt: skip
def test_the_shared_clean_tables_raise_one_alarm_at_most(
    table: MakeTable, real_table: object, name: str, target: str
) -> None:
    frame = pd.read_parquet(real_table.path(name)).select_dtypes(exclude=["datetime", "datetimetz"])
    frame = frame[:: -(-len(frame) // 10_000)]
    paths = table(frame, target, drop_constants=True)  # as the preparation does
    assert len(failed(paths)) <= 1
