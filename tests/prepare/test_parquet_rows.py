"""pyarrow splits a local Parquet table and counts its levels exactly as Spark does."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.prepare import levels, local_table, split
from sparkgpu.prepare.places import place, places_of
from sparkgpu.table.schema import OTHER_LEVEL

pytestmark = pytest.mark.spark

ROWS = 900
RANDOM = np.random.default_rng(3)
WORDS = RANDOM.choice(
    ["b", "a", "ä", "", "a.b", OTHER_LEVEL, None], ROWS, p=[0.3, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02]
)
MANY = np.char.add("w", np.minimum(RANDOM.geometric(0.02, ROWS), 200).astype(str))
COLUMNS = {
    "x": RANDOM.normal(size=ROWS),
    "word.s": WORDS,
    "many": MANY,
    "always": np.full(ROWS, "same"),
    "id": np.char.add("id", np.arange(ROWS).astype(str)),
}  # fmt: skip
TARGETS = {
    "number": np.where(RANDOM.random(ROWS) < 0.1, None, RANDOM.normal(size=ROWS)),
    "text": np.where(RANDOM.random(ROWS) < 0.1, None, RANDOM.choice(["no", "yes"], ROWS, p=[0.8, 0.2])),
    "flag": RANDOM.random(ROWS) < 0.3,
    "whole": RANDOM.integers(-2, 9, ROWS),
    "whole as double": np.where(RANDOM.random(ROWS) < 0.1, np.nan, RANDOM.integers(0, 3, ROWS)),
    "halves": RANDOM.integers(0, 2, ROWS) + 0.5,
}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    """The table with one of the targets, in one file or in three."""

    def write(target, *, files=1):
        table = pa.table({**COLUMNS, "y": pa.array(TARGETS[target], from_pandas=True)})
        path = tmp_path / f"{target} {files}.parquet"
        if files == 1:
            pq.write_table(table, path, row_group_size=250)
            return path
        path.mkdir()
        for part in range(files):
            step = ROWS // files
            pq.write_table(table.slice(part * step, step), path / f"part {part}.parquet")
        return path

    return write


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1])
def test_the_place_of_a_row_is_the_same_by_spark_and_by_numpy(spark, seed):
    ids = np.r_[0, 1, 2, RANDOM.integers(0, 2**63 - 1, 1000), 2**63 - 1]
    table = spark.createDataFrame(pd.DataFrame({"id": ids}))
    found = table.select("id", place(seed, table.id).alias("place")).toPandas()
    assert (found["place"] == places_of(seed, found["id"].to_numpy())).all()


@pytest.mark.parametrize(
    ("target", "files", "options"),
    [
        pytest.param("number", 1, {}, marks=pytest.mark.slow),
        pytest.param("text", 1, {"data.max_categories": 3}, marks=pytest.mark.slow),
        ("text", 3, {"split.test": 0.5, "split.valid": 0.3}),
        ("flag", 1, {"split.folds": 3}),
        pytest.param("whole", 3, {"data.max_categories": 20, "seed": 11}, marks=pytest.mark.slow),
        ("whole as double", 1, {"data.roles": {"id": "categorical", "always": "categorical"}}),
        pytest.param("halves", 1, {"data.task": "binary"}, marks=pytest.mark.slow),
        pytest.param("number", 1, {"data.roles": {"x": "categorical"}}, marks=pytest.mark.slow),
    ],
)
def test_a_table_is_prepared_alike_whoever_reads_it(prepare, file, target, files, options):
    source = file(target, files=files)
    found = prepare(source, "y", options)
    expected = prepare(source, "y", options, by_spark=True)
    assert found.schema == expected.schema
    pd.testing.assert_frame_equal(found.table(), expected.table())


def test_a_table_written_in_parts_is_in_the_order_of_its_rows(prepare, file, monkeypatch):
    source = file("text", files=3)
    expected = prepare(source, "y").table()
    monkeypatch.setattr(local_table, "_PART_ROWS", 400)
    found = prepare(source, "y")
    files = sorted(found.paths.split("train").glob("*.parquet"))
    assert len(files) == 3  # 400 rows hold one of the three files
    ids = [row for part in files for row in pq.ParquetFile(part).read()["row_id"].to_pylist()]
    assert ids == sorted(ids)
    pd.testing.assert_frame_equal(found.table(), expected)


def test_no_job_of_spark_looks_at_rows_before_the_table_is_written(prepare, file, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("asked Spark")

    monkeypatch.setattr(split, "_exact_cuts", refuse)
    monkeypatch.setattr("sparkgpu.prepare.prepare.count_levels", refuse)
    monkeypatch.setattr("sparkgpu.prepare.prepare.gather", refuse)
    monkeypatch.setattr("sparkgpu.prepare.target._count_values", refuse)
    assert prepare(file("text"), "y").schema.rows == np.count_nonzero(TARGETS["text"] != np.array(None))


def test_columns_of_very_many_levels_are_left_to_spark(prepare, file, monkeypatch):
    monkeypatch.setattr(levels, "_MOST_COUNTED", 100)
    asked = []
    monkeypatch.setattr(
        "sparkgpu.prepare.prepare.count_levels",
        lambda *these: asked.append(these) or levels.count_levels(*these),
    )
    assert prepare(file("flag"), "y").dropped.keys() == {"id", "always"}
    assert len(asked) == 1
