"""A folder whose files have different columns: each row keeps the values of its file."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.file_columns import file_columns
from sparkgpu.prepare.spark_source import open_numbered, refusing_unreadable
from sparkgpu.prepare.to_parquet import to_parquet
from sparkgpu.table.source import find_source

pytestmark = pytest.mark.spark

ROWS = 60


def part(*columns, seed=0, rows=ROWS):
    """Some of the columns of a table, with values of their own."""
    random = np.random.default_rng(seed)
    found = {
        "x": random.normal(size=rows),
        "word": random.choice(["a", "b", "c"], rows),
        "late": random.normal(size=rows),
        "late word": random.choice(["d", "e"], rows),
        "price": np.char.mod("%.2f", random.random(rows)),
        "y": random.choice(["no", "yes"], rows),
        "z": random.normal(size=rows),
    }
    return pa.table({name: found[name] for name in columns})


@pytest.fixture
def folder(tmp_path):
    """A folder of files by name."""

    def write(files, ending="parquet"):
        path = tmp_path / f"folder-{len(list(tmp_path.iterdir()))}"
        path.mkdir()
        writer = pa.orc.write_table if ending == "orc" else pq.write_table
        for number, table in enumerate(files):
            writer(table, path / f"{number}.{ending}")
        return path

    return write


FILES = {
    "a later file has more": (part("x", "y"), part("x", "y", "late", seed=1), part("x", "y", "late word")),
    "the first has more": (part("x", "word", "late", "price", "y"), part("y", "x", "word", seed=1)),
    "another order": (part("x", "word", "y"), part("word", "y", "x", seed=1)),
    "the target is absent in the first": (part("x", "word"), part("x", "word", "y", seed=1)),
    "only the target is left": (part("x", "word", "y"), part("y", seed=1), part("x", seed=2)),
}


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
@pytest.mark.parametrize("ending", ["parquet", "orc"])
def test_spark_reads_a_folder_of_files_with_other_columns_whole(spark, folder, tmp_path, files, ending):
    source = find_source(str(folder(files, ending)))
    found = open_numbered(spark, source, tmp_path).toPandas().sort_values(ROW_ID, ignore_index=True)
    expected = pa.concat_tables(files, promote_options="default").to_pandas()
    assert found.pop(ROW_ID).tolist() == list(range(len(expected)))
    pd.testing.assert_frame_equal(found[list(expected)], expected)


def test_a_column_that_only_some_files_have_is_used_and_said(prepare, folder):
    files = [part("x", "y", seed=s) for s in range(3)]
    files += [part("x", "late", "late word", "y", seed=s) for s in (3, 4)]
    found = prepare(folder(files), "y")
    assert list(found.kinds) == ["x", "late", "late word"]
    assert found.schema.notes == ("columns 'late', 'late word' are absent in 3 of 5 files and null there",)
    assert found.table()["late"].isna().tolist() == [True] * 180 + [False] * 120


def test_rows_of_files_without_the_target_have_none(prepare, folder):
    found = prepare(folder([part("x"), part("x", "y", seed=1), part("x", "y", seed=2)]), "y")
    assert (found.schema.rows, found.schema.rows_refused) == (120, 60)
    assert found.schema.notes == ("column 'y' is absent in 1 of 3 files and null there",)
    assert found.table()["row_id"].min() == 60


def test_files_that_all_have_the_same_columns_are_not_spoken_of(prepare, folder):
    assert prepare(folder([part("x", "y"), part("y", "x", seed=1)]), "y").schema.notes == ()


def test_orc_files_with_other_columns_keep_them_too(prepare, folder):
    found = prepare(folder([part("x", "y"), part("late", "y", seed=1)], "orc"), "y")
    assert list(found.kinds) == ["x", "late"] and found.schema.rows == 120
    assert found.schema.notes == ("columns 'x', 'late' are absent in 1 of 2 files and null there",)


def test_folders_named_by_a_column_may_differ_in_others(prepare, tmp_path):
    for year, columns in ((2023, ("x", "y")), (2024, ("x", "late", "y"))):
        (tmp_path / "t" / f"year={year}").mkdir(parents=True)
        pq.write_table(part(*columns, seed=year), tmp_path / "t" / f"year={year}" / "0.parquet")
    found = prepare(tmp_path / "t", "y", by="held")
    assert set(found.kinds) == {"x", "late", "year"}
    assert found.table()["year"].tolist() == [2023] * 60 + [2024] * 60


def test_lines_of_json_keep_the_columns_of_every_file(spark, tmp_path):
    (tmp_path / "t").mkdir()
    for number, columns in enumerate((("x", "y"), ("x", "late", "y"))):
        frame = part(*columns, seed=number).to_pandas()
        frame.to_json(tmp_path / "t" / f"{number}.jsonl", orient="records", lines=True)
    source = find_source(str(tmp_path / "t"))
    found = pq.read_table(to_parquet(source, tmp_path).location)
    assert found.column_names == ["x", "y", "late"] and found["late"].null_count == ROWS
    by_spark = open_numbered(spark, source, tmp_path).toPandas().sort_values(ROW_ID, ignore_index=True)
    pd.testing.assert_frame_equal(by_spark.drop(columns=ROW_ID), found.to_pandas())


@pytest.mark.parametrize("ending", ["parquet", "orc"])
@pytest.mark.parametrize("kinds", [(pa.int32(), pa.string()), (pa.string(), pa.float64())])
def test_files_that_disagree_on_a_type_are_refused(spark, refused, folder, tmp_path, kinds, ending):
    files = [
        part("y", seed=s).append_column("x", pa.array(range(ROWS)).cast(kind)) for s, kind in enumerate(kinds)
    ]
    source = find_source(str(folder([*files, part("y", "z")], ending)))

    def read():
        with refusing_unreadable(source):
            open_numbered(spark, source, tmp_path).toPandas()

    sentence = "its files disagree on the type of a column. Write them again with one schema."
    assert refused(read) == f"{source.name}: cannot be read as {ending}: {sentence}"
    if ending == "orc":
        assert refused(to_parquet, source, tmp_path) == f"{source.name}: cannot be read as orc: {sentence}"


def test_timestamps_in_other_units_are_refused_not_misread(spark, refused, folder, tmp_path):
    values = [datetime.datetime(2024, 1, 1) + datetime.timedelta(days=d) for d in range(ROWS)]
    for units in (("ns", "us"), ("us", "ns")):
        files = [part("x", "y").append_column("t", pa.array(values, pa.timestamp(unit))) for unit in units]
        source = find_source(str(folder(files)))
        text = refused(open_numbered, spark, source, tmp_path)
        assert "its files disagree on the type of a column. Write them again with one schema." in text


def test_the_notes_name_absent_columns(folder, prepare):
    path = folder([part("x", "y"), part("x", "y"), part("late", "x"), part("x")])
    assert file_columns(find_source(str(path))).absent == {"y": 2, "late": 3}
    assert prepare(path, "y").schema.notes == (
        "column 'y' is absent in 2 of 4 files and null there",
        "column 'late' is absent in 3 of 4 files and null there",
    )
