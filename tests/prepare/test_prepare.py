"""From small tables to the prepared table: target, features, names, weights, the pipeline and the files."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.utils.class_weight import compute_class_weight
from ways import WAYS

from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import OTHER_LEVEL, RESERVED_COLUMNS, read_schema
from sparkgpu.prepare.encoding import Encoder

ROWS = 120
NUMBERS = np.random.default_rng(0).normal(size=ROWS)
LABELS = ["yes" if i % 3 else "no" for i in range(ROWS)]


@pytest.mark.parametrize(
    ("values", "kind", "asked", "task", "classes", "labels"),
    [
        (["b", "a"], pa.string(), "auto", "binary", ("a", "b"), [1, 0]),
        ([True, False], pa.bool_(), "auto", "binary", ("false", "true"), [1, 0]),
        ([10, 9, 2], pa.int32(), "auto", "multiclass", ("2", "9", "10"), [2, 1, 0]),
        ([-1.0, 1.0, None], pa.float64(), "auto", "binary", ("-1", "1"), [0, 1, None]),
        ([0.5, 1.0], pa.float64(), "auto", "regression", (), [0.5, 1.0]),
        ([0.5, 1.0], pa.float64(), "binary", "binary", ("0.5", "1"), [0, 1]),
        ([3, 4], pa.int32(), "regression", "regression", (), [3.0, 4.0]),
        (list(range(20)), pa.int64(), "auto", "multiclass", tuple(map(str, range(20))), list(range(20))),
        (list(range(21)), pa.int64(), "auto", "regression", (), list(map(float, range(21)))),
        ([decimal.Decimal(0), decimal.Decimal(1)], pa.decimal128(9), "auto", "binary", ("0", "1"), [0, 1]),
        (["1.5", "NA", "9"], pa.string(), "binary", "binary", ("1.5", "9"), [0, None, 1]),
        (["1.5", "?", "2"], pa.string(), "auto", "regression", (), [1.5, None, 2.0]),
        (["1.0", "2", "3"], pa.string(), "auto", "multiclass", ("1", "2", "3"), [0, 1, 2]),
        (["00", "07", "12"], pa.string(), "auto", "multiclass", ("00", "07", "12"), [0, 1, 2]),
        (["00", "07", "12"], pa.string(), "regression", "regression", (), [0.0, 7.0, 12.0]),
        (["it's", "a\\b"], pa.string(), "auto", "binary", ("a\\b", "it's"), [1, 0]),
    ],
)  # fmt: skip
def test_a_target_becomes_codes_in_a_fixed_order_or_numbers(
    prepare, values, kind, asked, task, classes, labels
):
    found = prepare(
        {"x": np.arange(12 * len(values)) % 97, "y": pa.array(values * 12, kind)}, "y", {"data.task": asked}
    )
    assert (found.schema.task, found.schema.classes) == (task, classes)
    assert found.table()["label"].tolist() == [label for label in labels if label is not None] * 12
    assert found.schema.rows_refused == labels.count(None) * 12


@pytest.mark.parametrize(
    ("values", "kind", "asked", "words"),
    [
        ([None] * 4, pa.string(), "auto", "target 'y': all 4 rows are null"),
        (["a"] * 4, pa.string(), "auto", "has one class, 'a', in all 4 rows"),
        ([2.5] * 4, pa.float64(), "auto", "has one value in all 4 rows"),
        (["a", "a", "b"], pa.string(), "auto", "class 'b' has only one row; a class needs two"),
        (["1,5", "2,25", "3"] * 2, pa.string(), "auto", "'1,5', which are not read as numbers"),
        (["1.234,5"] + ["2"] * 3, pa.string(), "regression", "--task multiclass takes them for classes"),
        ([1.5, float("nan"), 2.5], pa.float64(), "auto", "holds 1 NaN and 0 infinite values among 3 rows"),
        (["1.5", "inf", "2"], pa.string(), "auto", "0 NaN and 1 infinite values"),
        ([1e39, -1e39, 2.5], pa.float64(), "auto", "holds 2 values beyond 3.4e38, the end of 32-bit numbers"),
        (["1e39", "-1e39", "2.5"], pa.string(), "auto", "2 values beyond 3.4e38, the end of 32-bit numbers"),
        ([f"c{i}" for i in range(1001)], pa.string(), "auto", "has more than 1,000 classes"),
        (["a", "b", "c"] * 2, pa.string(), "binary", "target 'y' has 3 classes (a, b, c)"),
        (["a", "b"] * 2, pa.string(), "regression", "holds no numbers"),
        ([True, False] * 2, pa.bool_(), "regression", "holds no numbers"),
        ([datetime.date(2024, 1, 1)] * 2, pa.date32(), "auto", "neither classes nor a number"),
        ([[1], [2]], pa.list_(pa.int64()), "multiclass", "neither classes nor a number"),
    ],
)  # fmt: skip
def test_a_target_that_cannot_be_learned_is_refused(prepare, refused, values, kind, asked, words):
    columns = {"x": range(len(values)), "y": pa.array(values, kind)}
    assert words in refused(prepare, columns, "y", {"data.task": asked})


def test_classes_of_few_rows_are_said(prepare):
    (note,) = prepare({"x": [*range(61), 0], "y": ["a", "b"] * 30 + ["c"] * 2}, "y").schema.notes[-1:]
    assert note == "classes with fewer than 10 rows, which no model can learn well: c (2)"


def test_each_column_gets_its_role_and_what_is_left_out_a_reason(prepare):
    start = datetime.datetime(1969, 12, 30, 6)
    number = [float(x) for x in NUMBERS]
    words = {
        "word": [None if i % 7 == 0 else f"level {i % 3}" for i in range(ROWS)],
        "often": [f"v{i % 2 * i % 40}" for i in range(ROWS)],
        "asked": [i % 3 for i in range(ROWS)],
        "word or nothing": ["a" if i % 2 else None for i in range(ROWS)],
    }
    numeric = {
        "number": [None, float("inf"), float("nan"), *number[3:]],
        "whole": pa.array([i * i % 17 for i in range(ROWS)], pa.int8()),
        "money": pa.array([decimal.Decimal(i % 9) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
        "flag": [None if i == 5 else i % 4 == 0 for i in range(ROWS)],
        "asked id": range(ROWS),
        "id with a gap": [*range(ROWS - 1), ROWS],
        "three or nothing": [3 if i % 2 else None for i in range(ROWS)],
    }
    at_six = pa.array([start + datetime.timedelta(days=i) for i in range(ROWS)], pa.timestamp("us"))
    pairs = pa.array([[[("a", 1)]]] * ROWS, pa.list_(pa.map_(pa.string(), pa.int64())))
    once = "constant: one timestamp in every row that has one"
    dropped = {
        "constant": ([3] * ROWS, "constant: one value in every row"),
        "constant word": (["a"] * ROWS, "constant: one value in every training row"),
        "null": (pa.array([None] * ROWS, pa.float64()), "no values: every row is null"),
        "void": (pa.nulls(ROWS), "no values: every row is null"),
        "list": ([[i, i] for i in range(ROWS)], "of type array<bigint>, which holds no single value"),
        "map": (pairs, "of type array<map<string,bigint>>, which holds no single value"),
        "once": ([None if i % 2 else pd.Timestamp("2024-01-01") for i in range(ROWS)], once),
        "no time": (
            ["a", "b"] * 60,
            "asked to be a timestamp, but no two different timestamps of ISO 8601 are read in it",
        ),
        "unwanted": (number, "ignored in the configuration"),
    }
    found = prepare(
        {
            **words,
            **numeric,
            "at six": at_six,
            **{name: one for name, (one, _) in dropped.items()},
            "y": LABELS,
        },
        "y",
        {
            "data.max_categories": 5,
            "data.target_means": False,
            "data.roles": {"asked": "categorical", "asked id": "numeric", "no time": "timestamp"},
            "data.ignore": ("unwanted",),
        },
    )
    parts = [f"at six ({part})" for part in ("year", "month", "day", "weekday", "days since 1970")]
    assert found.kinds == dict.fromkeys(words, "categorical") | dict.fromkeys([*numeric, *parts], "numeric")
    assert found.dropped == {name: reason for name, (_, reason) in dropped.items()}
    table = found.table()
    often = table["often"][table["split"] == "train"]
    levels, lost = len({words["often"][row] for row in often.index}), (often == OTHER_LEVEL).mean()
    assert found.schema.notes == (
        "1 infinite values in 'number' count as missing",
        f"often: {levels:,} levels; all but the 5 most frequent became one, in {100 * lost:.1f} % of the "
        "training rows (data.max_categories)",
    )
    assert table["number"].isna().tolist() == [i < 3 for i in range(ROWS)]
    assert table["word"].isna().tolist() == [i % 7 == 0 for i in range(ROWS)]
    assert table["money"].tolist() == [i % 9 / 4 for i in range(ROWS)]
    assert table["at_six_days_since_1970"].tolist()[0] == -1.75
    (often,) = (feature for feature in found.schema.features if feature.source == "often")
    assert often.levels[0] == "v0" and often.levels[-1] == OTHER_LEVEL and len(often.levels) == 6
    assert set(table["often"]) == set(often.levels)


@pytest.mark.parametrize("by", WAYS)
def test_durations_and_times_of_day_are_seconds_in_whatever_unit_they_are_stored(prepare, by):
    ms_N = [None, *range(1, ROWS)]
    took, at = pa.array(ms_N, pa.duration("ms")), pa.array(ms_N, pa.time32("ms"))
    columns = {f"took {unit}": took.cast(pa.duration(unit)) for unit in ("ms", "us", "ns")}
    if by != "held":  # Spark itself opens no table with times of day
        columns |= {"at ms": at} | {f"at {unit}": at.cast(pa.time64(unit)) for unit in ("us", "ns")}
    found = prepare(columns | {"y": LABELS}, "y", by=by)
    table = found.stored()
    expected_N = (np.array([np.nan, *range(1, ROWS)]) / 1000).astype(np.float32)
    for feature in found.schema.features:
        np.testing.assert_array_equal(table[feature.name], expected_N)
    new = {name: [1.5, 2.0] for name in columns} | {"took us": pa.array([1, 2], pa.duration("s"))}
    value_NF = Encoder(found.schema).rows(pa.table(new)).numeric_NF
    assert value_NF[0].tolist() == [1.0 if name == "took us" else 1.5 for name in columns]


def test_columns_that_name_the_rows_are_left_out_where_rows_are_enough(prepare):
    columns = {
        "x": NUMBERS,
        "id": range(1000, 1000 + ROWS),
        "code": [str(5000 + 7 * i) for i in range(ROWS)],
        "name": [f"person {i}" for i in range(ROWS)],
        "nearly": [f"person {i % 90}" for i in range(ROWS)],
        "y": LABELS,
    }
    found = prepare(columns, "y")
    assert found.dropped == {
        "id": "id-like: numbers the rows",
        "code": "id-like or free text: 84 different texts in 84 training rows",
        "name": "id-like or free text: 84 different texts in 84 training rows",
    }
    assert found.schema.notes == (
        """data.roles = {"id" = "numeric"} takes one of 'id', 'code' in""",
        """data.roles = {"name" = "categorical"} takes 'name' in""",
    )
    for name, role in (("code", "numeric"), ("name", "categorical")):
        (note,) = prepare({"x": NUMBERS, name: columns[name], "y": LABELS}, "y").schema.notes
        assert note == f'data.roles = {{"{name}" = "{role}"}} takes {name!r} in'
        assert name in prepare(columns, "y", {"data.roles": {name: role}}).kinds
    few = {name: values[:40] for name, values in columns.items()}
    assert prepare(few, "y").dropped == {}
    asked = prepare(columns, "y", {"data.roles": {"code": "numeric"}})
    assert asked.table()["code"].tolist() == [5000 + 7 * i for i in range(ROWS)]


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_index_of_a_shuffled_frame_is_left_out_unless_asked_for(prepare, tmp_path, ending):
    shuffled = pd.DataFrame({"x": NUMBERS, "y": LABELS}).sample(frac=0.9, random_state=1)
    file = tmp_path / f"t.{ending}"
    if ending == "csv":
        shuffled.to_csv(tmp_path / "once.csv")
        shuffled = pd.read_csv(tmp_path / "once.csv")
        shuffled.to_csv(file, index=False)
    else:
        shuffled.to_parquet(file)
    found = prepare(file, "y")
    ((index, reason),) = found.dropped.items()
    assert reason == "id-like: the index of a frame, which pandas wrote beside its columns"
    assert found.schema.notes == (f'data.roles = {{"{index}" = "numeric"}} takes {index!r} in',)
    assert index in prepare(file, "y", {"data.roles": {index: "numeric"}}).kinds


@pytest.mark.parametrize("kind", ["csv", "double", "decimal", "whole"])
def test_numbers_that_differ_only_beyond_32_bits_are_left_out_with_what_is_true(prepare, tmp_path, kind):
    start, step = (2**61, 1000) if kind == "whole" else (10**20, 2**20)
    values = [start + i * i * step for i in range(ROWS)]
    if kind != "csv":
        as_kind = {"double": float, "decimal": decimal.Decimal, "whole": int}[kind]
        found = prepare({"far": [*map(as_kind, values)], "x": NUMBERS, "y": LABELS}, "y")
    else:
        file = tmp_path / "t.csv"
        pd.DataFrame({"far": list(map(str, values)), "x": NUMBERS, "y": LABELS}).to_csv(file, index=False)
        found = prepare(file, "y")
    reason = found.dropped["far"]
    assert reason.startswith("constant as 32-bit numbers, which models learn from: all lie between ")
    assert reason.endswith("; subtract an offset")
    near = prepare({"far": [float(one - start) for one in values], "x": NUMBERS, "y": LABELS}, "y")
    assert near.table()["far"].nunique() == ROWS


def test_numbers_that_32_bits_do_not_hold_count_as_missing_and_are_said(prepare):
    large = np.where(np.arange(ROWS) % 40 == 0, 1e300, NUMBERS)
    found = prepare(
        {
            "x": large,
            "both": np.where(np.arange(ROWS) == 1, -np.inf, -large),
            "text": [f"{value:.3e}" for value in large],
            "single": pa.array(np.where(np.arange(ROWS) == 0, 3e38, NUMBERS), pa.float32()),
            "y": LABELS,
        },
        "y",
    )
    assert found.schema.notes == (
        "3 values beyond 3.4e38 in 'x' count as missing",
        "1 infinite values in 'both' count as missing",
        "3 values beyond 3.4e38 in 'both' count as missing",
        "3 values beyond 3.4e38 in 'text' count as missing",
        "'text' is text that holds numbers and is read as such",
    )
    table = found.table()
    assert table["x"].isna().tolist() == [i % 40 == 0 for i in range(ROWS)] == table["text"].isna().tolist()
    assert table["both"].isna().sum() == 4 and table["single"].isna().sum() == 0


@pytest.mark.spark
def test_the_saved_pipeline_reads_the_texts_and_what_it_cannot_read_is_missing(prepare, spark):
    columns = {
        "price": [f"{value:.3f}" for value in NUMBERS],
        "day": [f"2024-0{i % 9 + 1}-1{i % 8}" for i in range(ROWS)],
        "y": LABELS,
    }
    found = prepare(columns, "y", by="spark")
    later = spark.createDataFrame(
        [("1.5", "2024-02-03"), ("n/k", "?"), ("1e300", "")], "price string, day string"
    )
    vectors = found.vectors(later)
    assert vectors[0][:3].tolist() == [1.5, 2.0, 3.0]
    assert np.isnan(vectors[1]).all() and np.isnan(vectors[2]).all()


NAMES = [
    "a.b", "a b", "a-b", "a/b", "it's", 'say "x"', "back`tick", "größe", "価格", "$$", "x", "X", "label",
    "split", "row_id", "features", "assembled_features", "weight", "fold", "f0", "f1_index", "prediction",
    "a\\b", "{x}", "2nd", "label_2", "a_b",
]  # fmt: skip


@pytest.mark.spark
def test_columns_of_any_name_keep_their_values(prepare, spark):
    columns = {
        name: NUMBERS + i if i % 2 else [f"l{(i + j) % 3}" for j in range(ROWS)]
        for i, name in enumerate(NAMES)
    }
    found = prepare(
        {**columns, "f2": LABELS}, "f2", {"split.kind": "group", "split.column": "a b"}, by="spark"
    )
    assert [feature.source for feature in found.schema.features] == [n for n in NAMES if n != "a b"]
    names = [feature.name for feature in found.schema.features]
    assert len({name.casefold() for name in names} - set(RESERVED_COLUMNS)) == len(names)
    assert all(name.isascii() and name.isidentifier() for name in names)
    assert names[:3] == ["a_b", "a_b_2", "a_b_3"] and "_2nd" in names and "column_8" in names
    table = found.table()
    for feature in found.schema.features:
        expected = columns[feature.source]
        expected = expected.astype(np.float32) if feature.kind == "numeric" else expected
        assert table[feature.name].tolist() == list(expected), feature.source
    source = spark.createDataFrame(pd.DataFrame({**columns, "f2": LABELS}))
    applied = found.pipeline().transform(source)
    assert len(applied.select("assembled_assembled_features").first()[0]) == len(NAMES) - 1


@pytest.mark.spark
def test_levels_of_any_text_are_kept_and_capped_alike(prepare, spark):
    odd = ["", " ", "it's", 'say "x"', "back\\slash", "new\nline", "\x01", "\t", "größe", "🦉", "${x}", "[a]"]
    words = [odd[row % len(odd)] for row in range(ROWS - 12)] + [f"rare {row % 6}" for row in range(12)]
    options = {"data.max_categories": len(odd), "data.target_means": False, "split.test": 0.05}
    found = prepare({"word": words, "y": LABELS}, "y", options, by="spark")
    (feature,) = found.schema.features
    assert set(feature.levels) == {*odd, OTHER_LEVEL}
    assert found.table()["word"].tolist() == [word if word in odd else OTHER_LEVEL for word in words]
    (labels,) = found.pipeline().stages[1].labelsArray
    assert tuple(labels) == feature.levels[:-1]


def test_the_pipeline_is_fitted_on_training_rows_only(prepare):
    words = ["train"] * 80 + ["valid"] * 20 + ["test"] * 20
    found = prepare(
        {
            "part": words,
            "word": ["a" if i % 3 else "b" for i in range(100)] + ["late"] * 20,
            "only late": [None] * 100 + ["x", "y"] * 10,
            "rest": ["(other)" if i % 3 else "z" if i % 2 else "w" for i in range(ROWS)],
            "y": LABELS,
        },
        "y",
        {"split.kind": "column", "split.column": "part"},
    )
    assert [(f.source, f.levels) for f in found.schema.features] == [
        ("word", ("a", "b")),
        ("rest", ("w", "z", OTHER_LEVEL)),
    ]
    assert found.dropped == {"only late": "no values: every training row is null"}
    assert found.schema.notes == ()
    table = found.table()
    assert table["split"].tolist() == words
    assert table["rest"].tolist() == ["(other)" if i % 3 else "z" if i % 2 else "w" for i in range(ROWS)]
    assert (read_rows(found.paths, found.schema, "test").codes_NK[:, 0] == -1).all()


def test_the_table_is_typed_whole_and_in_the_order_of_its_rows(prepare, tmp_path):
    frame = pd.DataFrame({"x": NUMBERS, "w": ["a", "b", "c"] * 40, "y": [*LABELS[:-6], *[None] * 6]})
    (tmp_path / "t").mkdir()
    for part in range(3):
        own = frame.iloc[40 * part : 40 * (part + 1)]
        own.to_parquet(tmp_path / "t" / f"{part}.parquet", row_group_size=10)
    once = prepare(tmp_path / "t", "y")
    schema, table = once.schema, once.table()
    assert (schema.rows, schema.rows_refused) == (114, 6) and schema == read_schema(once.paths)
    assert table["row_id"].tolist() == list(range(114))
    assert table["x"].tolist() == NUMBERS[:114].astype(np.float32).tolist()
    assert table["label"].tolist() == [int(label == "yes") for label in LABELS[:114]]
    assert table["split"].value_counts().to_dict() == schema.splits
    names = {"row_id": "int64", "label": "int32", "x": "float", "w": "float"}
    newest = once.paths.schema.stat().st_mtime_ns
    for file in once.paths.table.glob("*/*.parquet"):
        assert {field.name: str(field.type) for field in pq.read_schema(file)} == names
        assert file.stat().st_mtime_ns <= newest
    assert not (once.paths.root / ".table").exists()
    # The same rows in one file, columns in another order: the same fingerprint, split and values.
    frame[["y", "w", "x"]].to_parquet(tmp_path / "one.parquet")
    again = prepare(tmp_path / "one.parquet", "y")
    assert again.schema.fingerprint == schema.fingerprint
    pd.testing.assert_frame_equal(again.table()[list(table)], table)
    frame.loc[3, "x"] = 0.0
    frame.to_parquet(tmp_path / "other.parquet")
    other = prepare(tmp_path / "other.parquet", "y", {"seed": 8})
    assert other.schema.fingerprint != schema.fingerprint
    assert other.table()["split"].tolist() != table["split"].tolist()


def test_weights_are_the_columns_own_times_the_balance_of_the_classes(prepare):
    own = np.arange(ROWS) % 3 / 2.0
    columns = {"x": NUMBERS, "own": own, "y": LABELS, "z": NUMBERS**2}
    found = prepare(columns, "y", {"data.weight": "own", "data.class_weights": "balanced"})
    balanced = compute_class_weight("balanced", classes=np.array(["no", "yes"]), y=LABELS)
    balance = dict(zip(("no", "yes"), balanced, strict=True))
    expected = [weight * balance[label] for weight, label in zip(own, LABELS, strict=True)]
    assert found.schema.weighted and found.table()["weight"].tolist() == pytest.approx(expected)
    assert found.schema.weight == "own" and found.schema.class_weights == pytest.approx(balanced)
    assert list(found.kinds) == ["x", "z"]
    plain = prepare(columns, "z", {"data.class_weights": "balanced"})
    assert not plain.schema.weighted and "weight" not in plain.table()
    assert plain.schema.notes == (
        "class_weights = balanced has no meaning for a regression and was not applied",
    )


@pytest.mark.parametrize(
    ("target", "distribution", "words"),
    [
        ("count", "gamma", "needs a target above 0, and the least value of 'count' is 0."),
        ("signed", "poisson", "needs a target of 0 or more, and the least value of 'signed' is -1."),
        ("y", "tweedie", "is for numbers; target 'y' has classes."),
    ],
)
def test_a_target_without_the_distribution_that_is_asked_for_is_refused(
    prepare, refused, target, distribution, words
):
    columns = {
        "x": NUMBERS,
        "count": np.arange(ROWS) % 100,
        "signed": np.arange(ROWS) % 90 - 1.0,
        "y": LABELS,
    }
    options = {"trees.distribution": distribution, "data.task": "auto"}
    assert words in refused(prepare, columns, target, options)
    if target == "count":
        assert prepare(columns, target, {"trees.distribution": "poisson"}).schema.task == "regression"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([-1.0, float("nan"), 1e39, None], "120 rows have no number from 0 to 3.4e38. Correct or remove"),
        ([0.0] * 4, "is zero in all 84 rows of split train"),
        ([datetime.date(2024, 1, 1)] * 4, "is of type date; a weight must be a number"),
    ],
)
def test_weights_that_are_none_are_refused(prepare, refused, values, words):
    columns = {"x": NUMBERS, "w": values * 30, "y": LABELS}
    assert words in refused(prepare, columns, "y", {"data.weight": "w"})


def test_folds_are_written_and_leave_no_split_to_validate_on(prepare):
    found = prepare({"x": NUMBERS, "y": LABELS}, "y", {"split.folds": 3})
    table = found.table()
    assert found.schema.folds == 3 and found.schema.splits["valid"] == 0
    assert sorted(table["fold"][table["split"] == "train"].unique()) == [0, 1, 2]
    rows = [len(read_rows(found.paths, found.schema, "valid", fold=fold).row_id_N) for fold in range(3)]
    assert sum(rows) == found.schema.splits["train"]


@pytest.mark.parametrize(
    ("columns", "target", "options", "words"),
    [
        ({"x": NUMBERS, "y": LABELS}, None, {}, "Choose the column to predict with --target: x, y."),
        ({"x": NUMBERS, "income": LABELS}, "incme", {}, "no such column. Did you mean 'income'?"),
        ({"x": NUMBERS, "y": LABELS}, "y", {"data.roles": {"xx": "numeric"}}, "(numeric) 'xx': no such col"),
        ({"x": NUMBERS, "y": LABELS}, "y", {"data.ignore": ("z",)}, "data.ignore 'z': no such column"),
        ({"x": NUMBERS, "y": LABELS}, "y", {"data.weight": "y"}, "data.weight 'y' is the target"),
        ({"x": [1] * ROWS, "y": LABELS}, "y", {}, "no usable features: x (constant: one value in every row)"),
        ({"y": LABELS}, "y", {}, "no usable features: the target is the only column"),
        ({"n": [f"n{i}" for i in range(ROWS)], "y": LABELS}, "y", {}, "no usable features: n (id-like"),
        ({"x": [1, 2, 4], "y": [0.5, 1.5, 2.5]}, "y", {}, "3 usable rows leave none for"),
        ({"__sparkgpu_x": NUMBERS, "y": LABELS}, "y", {}, "names that begin with __sparkgpu_"),
        ({"a __THIS__": NUMBERS, "y": LABELS}, "y", {}, "or hold __THIS__ are reserved. Rename them."),
        ({"x": [[1]] * ROWS, "y": LABELS}, "y", {"data.roles": {"x": "boolean"}},
         "'x' is of type array<bigint> and cannot be read as boolean. Choose ignore."),
    ],
)  # fmt: skip
def test_a_table_nothing_can_be_learned_from_is_refused(prepare, refused, columns, target, options, words):
    assert words in refused(prepare, columns, target, options)


@pytest.mark.parametrize(
    ("name", "target", "task", "num_classes", "numeric", "categorical"),
    [
        ("adult", "income", "binary", 2, 6, 8),
        ("california_housing", "MedHouseVal", "regression", 0, 10, 0),
        ("letter", "target", "multiclass", 26, 16, 0),
        ("ames_housing", "Sale_Price", "regression", 0, 34, 46),
        ("german_credit", "credit_risk", "binary", 2, 7, 13),
        ("penguins", "species", "multiclass", 3, 5, 2),
    ],
)
def test_a_real_table_needs_nothing_but_its_target(
    prepare, real_table, name, target, task, num_classes, numeric, categorical
):
    file = real_table.path(name)
    found = prepare(file, target).schema
    assert (found.task, len(found.classes)) == (task, num_classes)
    assert (len(found.numeric), len(found.categorical)) == (numeric, categorical), found.dropped
    assert found.rows == sum(found.splits.values()) == pq.read_metadata(file).num_rows
    assert abs(found.splits["test"] / found.rows - 0.15) < 0.01
    pairs = [note for note in found.notes if note.startswith("Latitude (+ Longitude)")]
    assert found.rows_refused == 0 and found.notes == tuple(pairs)
    assert len(pairs) == (name == "california_housing")
