"""Spark's pipeline, Arrow and the encoder of new rows make the same features, from files of every format."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.config.registry.source_formats import FORMATS
from sparkgpu.core.table.rows import Rows, joined, read_rows
from sparkgpu.core.table.source import find_source
from sparkgpu.prepare.column_values import MISSING_TEXTS
from sparkgpu.prepare.encoding import Encoder, labels
from sparkgpu.prepare.target_means import load_means

ROWS = 900
RANDOM = np.random.default_rng(0)
FIRST = datetime(2023, 12, 30, 22, 59, 7, 250_000, UTC)


def gaps(values: list[object], every: int) -> list[object]:
    return [None if i % every == 0 else value for i, value in enumerate(values)]


def everything() -> pa.Table:
    """One column of every kind that a table may hold, with gaps."""
    number_N = RANDOM.normal(size=ROWS) * 1e3
    timestamps = [FIRST + timedelta(hours=31 * i, seconds=i) for i in range(ROWS)]
    return pa.table(
        {
            "price": pa.array(gaps(number_N.tolist(), 7), pa.float64()),
            "size": pa.array(number_N.astype(np.float32), pa.float32()),
            "count": pa.array(gaps([int(x) for x in number_N], 11), pa.int32()),
            "large": pa.array([int(x * 1e12) for x in number_N], pa.int64()),
            "wild": pa.array([[1.5, float("inf"), float("nan"), 1e300, -2.0][i % 5] for i in range(ROWS)]),
            "owns": pa.array(gaps([i % 3 == 0 for i in range(ROWS)], 13), pa.bool_()),
            "exact": pa.array([Decimal(f"{x:.2f}") for x in number_N], pa.decimal128(12, 2)),
            "word": pa.array(gaps([f"w {i * i % 23}" for i in range(ROWS)], 9)),
            "us.er`s": pa.array([f"u{int(abs(x)) % 400}" for x in number_N]),
            "zone": pa.array([int(abs(x)) % 5 for x in number_N], pa.int64()),
            "rate": pa.array([[0.1, 2.0, 1e-7, 12345678.5][i % 4] for i in range(ROWS)], pa.float64()),
            "text": pa.array([f" {x:.3f}" if i % 8 else "NA" for i, x in enumerate(number_N)]),
            "when": pa.array(gaps(timestamps, 10), pa.timestamp("us", "UTC")),
            "local": pa.array([m.replace(tzinfo=None) for m in timestamps], pa.timestamp("us")),
            "nano": pa.array([m.replace(tzinfo=None) for m in timestamps], pa.timestamp("ns")),
            "nano zoned": pa.array(timestamps, pa.timestamp("ns", "UTC")),
            "_metadata": number_N,
            "stamp": pa.array(
                [FIRST + timedelta(hours=i % 4) for i in range(ROWS)], pa.timestamp("us", "UTC")
            ),
            "old": pa.array([date(1500 + i % 7, 3, 1 + i % 28) for i in range(ROWS)]),
            "before": pa.array(
                [datetime(1969, 12, 31, 23, 59, 59, 1000 * (i % 999)) for i in range(ROWS)],
                pa.timestamp("us"),
            ),
            "edge": pa.array([[3.4028235e38, -0.0, 0.1, -3.5e38][i % 4] for i in range(ROWS)]),
            "signed zero": pa.array([[0.0, -0.0, 1.5, float("inf")][i % 4] for i in range(ROWS)]),
            "huge": pa.array([2**62 + 3**i % 10**15 for i in range(ROWS)], pa.int64()),
            "un.sign`ed": pa.array([2**63 + i % 37 for i in range(ROWS)], pa.uint64()),
            "day": pa.array([date(2020, 1, 1) + timedelta(days=5 * i) for i in range(ROWS)]),
            "said": pa.array(
                [f"{m:%Y-%m-%dT%H:%M:%S}+02:00" if i % 6 else "" for i, m in enumerate(timestamps)]
            ),
            "y": pa.array(["yes" if x > 100 else "no" for x in number_N]),
        }
    )


EDGES = ["nano", "nano zoned", "stamp", "old", "before", "edge", "signed zero", "huge", "un.sign`ed"]
ROLES = {"zone": "categorical", "rate": "categorical", "stamp": "categorical", "signed zero": "categorical"}


def encoded(path: Path, found) -> Rows:
    """All rows of the file, by the reader of its format."""
    source = find_source(str(path))
    encoder = Encoder(found.schema, load_means(found.paths.table, found.schema.features))
    read = FORMATS.find(source.format).loaded_from(FORMATS.find(source.format).read)
    parts, first = [], 0
    for batch in read(source, [*encoder.columns, found.schema.target]):
        encoder.check(batch.schema.names, "the file")
        label_N = labels(batch.column(found.schema.target), found.schema)
        parts.append(replace(encoder.rows(batch, first=first), label_N=label_N))
        first += batch.num_rows
    return joined(parts)


def assert_same(path: Path, found) -> None:
    rows = encoded(path, found)
    for split in ("valid", "test"):
        wanted = read_rows(found.paths, found.schema, split)
        own = rows.part(wanted.row_id_N)
        for field in ("label_N", "numeric_NF", "codes_NK"):
            np.testing.assert_array_equal(getattr(own, field), getattr(wanted, field), field)


@pytest.mark.parametrize("most", [1000, 20])
def test_new_rows_become_what_the_rows_of_the_table_became(prepare, tmp_path, most):
    path = tmp_path / "a.parquet"
    pq.write_table(everything(), path, row_group_size=250)
    found = prepare(path, "y", {"data.roles": ROLES, "data.max_categories": most})
    assert {"price", "owns", "wild", "zone", "when_hour", "said_hour", "text"} <= {
        feature.name for feature in found.schema.features
    }
    assert {feature.means_of for feature in found.schema.features} == {None, "us_er_s"}
    assert_same(path, found)


@pytest.mark.spark
@pytest.mark.parametrize(
    "options",
    [
        {"data.max_categories": 20, "split.folds": 3, "data.weight": "size"},
        {"split.kind": "time", "split.column": "nano"},
        {"data.class_weights": "balanced", "split.kind": "group", "split.column": "un.sign`ed"},
        pytest.param(
            {"data.max_categories": 20, "split.kind": "time", "split.column": "local"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_spark_and_arrow_make_the_same_table_to_the_last_bit(prepare, same, tmp_path, options):
    path = tmp_path / "t"
    path.mkdir()
    table = everything()
    size = table.schema.get_field_index("size")
    table = table.set_column(size, "size", pa.compute.abs(table["size"]))
    for part, name in enumerate(("a b", "c=[1]", "d+e%")):
        pq.write_table(table.slice(300 * part, 300), path / f"{part} {name}.parquet", row_group_size=100)
    options = {"data.roles": ROLES, **options}
    by = {way: prepare(path, "y", options, by=way) for way in ("arrow", "spark", "held")}
    same(by["spark"], by["arrow"])
    same(by["held"], by["arrow"])


@pytest.mark.spark
def test_a_table_that_tasks_of_spark_write_is_the_same(prepare, same, tmp_path, monkeypatch):
    path, options = tmp_path / "a.parquet", {"data.roles": ROLES, "data.max_categories": 20}
    pq.write_table(everything(), path, row_group_size=100)
    expected = prepare(path, "y", options)
    monkeypatch.setattr("sparkgpu.prepare.table_rows._MOST_VALUES_HERE", 0)
    same(prepare(path, "y", options, by="spark"), expected)


@pytest.mark.spark
def test_rows_of_folders_have_the_ids_of_their_places(prepare, same, tmp_path):
    table = everything().select(["price", "word", "y"])
    for part, name in enumerate(("2024", "2024-01", "2024.b")):
        (tmp_path / "t" / name).mkdir(parents=True)
        pq.write_table(table.slice(300 * part, 300), tmp_path / "t" / name / "a.parquet")
    same(*(prepare(tmp_path / "t", "y", by=way) for way in ("arrow", "spark")))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("penguins", "species"),
        ("ames_housing", "Sale_Price"),
        ("german_credit", "credit_risk"),
        ("adult", "income"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (
                ("california_housing", "MedHouseVal"),
                ("letter", "target"),
                ("diamonds", "price"),
                ("nycflights_delay", "arr_delay"),
                ("covertype", "Cover_Type"),
            )
        ),
    ],
)
def test_the_saved_pipeline_in_plain_spark_gives_the_vectors_of_the_table(
    prepare, real_table, spark, name, target
):
    file = real_table.path(name)
    found = prepare(file, target, by="spark")
    source = spark.read.parquet(str(file)).where(f"`{target}` IS NOT NULL").coalesce(1)
    vectors = found.vectors(source)
    stored = found.stored()[[feature.name for feature in found.schema.features]].to_numpy()
    assert len(vectors) == len(stored) == found.schema.rows
    np.testing.assert_array_equal(vectors, stored)


@pytest.mark.spark
def test_mean_targets_are_the_columns_that_the_saved_pipeline_asks_for(prepare, spark, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(
        everything().drop_columns(["nano", "nano zoned"]), path
    )  # which plain Spark reads as integers
    found = prepare(path, "y", {"data.roles": ROLES, "data.max_categories": 20}, by="spark")
    made = [feature for feature in found.schema.features if feature.means_of is not None]
    encoder = Encoder(found.schema, load_means(found.paths.table, found.schema.features))
    rows = encoder.rows(pq.read_table(path))
    places = {feature.name: place for place, feature in enumerate(found.schema.numeric)}
    frame = spark.read.parquet(str(path)).toPandas()
    for feature in made:
        frame[feature.pipeline] = rows.numeric_NF[:, places[feature.name]].astype(float)
    assert made
    vectors, stored = found.vectors(spark.createDataFrame(frame)), found.stored()
    held_out = stored[stored["split"] != "train"]
    expected = held_out[[feature.name for feature in found.schema.features]].to_numpy()
    np.testing.assert_array_equal(vectors[held_out["row_id"]], expected)


@pytest.mark.parametrize("ending", ["csv", pytest.param("csv.gz", marks=pytest.mark.slow), "jsonl", "orc"])
def test_rows_of_other_files_are_encoded_as_they_were_prepared(prepare, tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    table = everything().drop_columns(["wild", *EDGES])
    if ending == "orc":
        pa.orc.write_table(table.drop_columns(["when"]), path)  # Spark reads no zones there
    else:
        frame = table.to_pandas()
        frame["count"], frame["owns"] = frame["count"].astype("Int64"), frame["owns"].astype("boolean")
        if ending == "jsonl":
            frame["exact"] = frame["exact"].astype(float)
            for name in ("when", "local", "day"):
                frame[name] = frame[name].map(lambda timestamp: None if timestamp is None else str(timestamp))
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_csv(path, index=False)
    found = prepare(path, "y", {"data.roles": {"zone": "categorical", "rate": "categorical"}})
    assert {"text", "said_hour", "day_day"} <= {feature.name for feature in found.schema.numeric}
    is_said = any(
        "'text' is text that holds numbers and is read as such" in note for note in found.schema.notes
    )
    assert is_said == (ending in ("jsonl", "orc"))  # nobody chose text in CSV
    assert_same(path, found)


TEXTS = {
    "whole": ["1", "-2", "007", " 3 ", "9007199254740993"],
    "float": ["1.5", "1e5", "-2.5E-3", "+5", ".5", "5.", "1e-400", " 2.5 "],
    "huge": ["9223372036854775808", "1"],
    "flag": ["true", "false", "TRUE", "False"],
    "date": ["2024-02-29", "1899-12-31", "0001-01-01"],
    "timestamp": ["2024-02-29 12:30", "2024-02-29T12:30:59.123456", "2024-02-29", "2024-02-29 12"],
    "zoned": ["2024-02-29T12:30:59Z", "2024-02-29T12:30:59+05:30", "2024-02-29T12:30Z", "2024-02-29T12+0530"],
    "word": ["007", " a ", "1.50", "12:30"],
}


def test_new_rows_of_csv_are_read_as_training_read_the_same_texts(prepare, tmp_path):
    columns = [[*texts, *MISSING_TEXTS] for texts in TEXTS.values()]
    lines = [",".join(column[i % len(column)] for column in columns) + f",{i % 2}" for i in range(ROWS)]
    (tmp_path / "a.csv").write_text("\n".join([",".join([*TEXTS, "y"]), *lines]), encoding="utf-8")
    found = prepare(tmp_path / "a.csv", "y")
    assert {feature.source for feature in found.schema.numeric} == TEXTS.keys() - {"word"}
    (word,) = found.schema.categorical
    assert set(word.levels) == set(TEXTS["word"])
    assert_same(tmp_path / "a.csv", found)


@pytest.mark.parametrize("kind", ["date", "timestamp", "text"])
def test_whole_numbers_in_place_of_dates_are_no_seconds_and_are_counted(prepare, tmp_path, kind):
    days = pa.array([date(2020, 1, 1) + timedelta(days=5 * i) for i in range(ROWS)])
    of = {"date": days, "timestamp": days.cast(pa.timestamp("us")), "text": days.cast(pa.string())}
    pq.write_table(pa.table({"day": of[kind], "y": everything()["y"]}), tmp_path / "a.parquet")
    found = prepare(tmp_path / "a.parquet", "y")
    encoder = Encoder(found.schema, {})
    rows = encoder.rows(pa.record_batch({"day": pa.array([20241231, 20250101])}))
    assert np.isnan(rows.numeric_NF).all() and encoder.findings.unreadable == {"day": 2}


@pytest.mark.spark
def test_folder_names_and_absent_columns_are_encoded_as_they_were_prepared(prepare, tmp_path):
    table = everything().select(["price", "word", "y"])
    folder = tmp_path / "t"
    for year in (2023, 2024):
        (folder / f"year={year}").mkdir(parents=True)
        part = table.slice(0 if year == 2023 else 450, 450)
        columns = ["price", "word", "y"] if year == 2023 else ["y", "price"]
        pq.write_table(part.select(columns), folder / f"year={year}" / "a.parquet")
    found = prepare(folder, "y", by="held")
    assert {"year", "word"} <= {feature.name for feature in found.schema.features}
    assert_same(folder, found)


def test_numbers_of_a_regression_and_whole_classes_are_labelled_alike(prepare, tmp_path):
    table = (
        everything().select(["price", "count", "word"]).filter(pa.array([i % 77 != 0 for i in range(ROWS)]))
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table.append_column("k", pa.array([float(i % 3) for i in range(len(table))])), path)
    assert_same(path, prepare(path, "k"))
    assert_same(path, prepare(path, "price"))
