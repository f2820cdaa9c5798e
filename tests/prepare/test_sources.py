"""Tables of every format through Spark: what is read, in which order, and how the rest is refused."""

from __future__ import annotations

import gzip
import os
import re
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.unreadable import refusing_unreadable

pytestmark = pytest.mark.spark

FRAME = pd.DataFrame(
    {
        "place": range(60),
        "word": [f"w{i % 7}, {i % 3}" for i in range(60)],
        "half": [i / 2 for i in range(60)],
    }
)


@contextmanager
def cut(spark, size):
    """Spark cuts files into tasks of at most `size` bytes."""
    spark.conf.set("spark.sql.files.maxPartitionBytes", size)
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")


def write_csv(path, frame=FRAME, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, **options)


def write_parquet(path, frame=FRAME, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, **options)


def write_orc(path):
    pa.orc.write_table(pa.Table.from_pandas(FRAME), path)


def write_json(path, frame=FRAME):
    frame.to_json(path, orient="records", lines=True)


@pytest.mark.parametrize(
    ("name", "write", "options"),
    [
        ("odd [1]{a} 100%#é.parquet", write_parquet, {}),
        ("odd [1]*{a} 100%#é.csv", write_csv, {}),
        ("a.csv.gz", write_csv, {}),
        ("a.csv", write_csv, {"sep": ";"}),
        ("a.tsv", write_csv, {"sep": "\t", "encoding": "utf-8-sig"}),
        ("a.orc", write_orc, {}),
        ("a.jsonl", write_json, {}),
    ],
)
def test_each_kind_of_file_is_read_whole_and_in_its_order_with_and_without_spark(
    read, converted, tmp_path, name, write, options
):
    path = tmp_path / name
    write(path, **options)
    found = read(path)
    assert found.pop(ROW_ID).tolist() == list(range(60))
    pd.testing.assert_frame_equal(found, FRAME)
    pd.testing.assert_frame_equal(converted(path).read().to_pandas(), FRAME)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_folder_of_any_depth_is_read_by_file_name_however_spark_cuts_it(spark, read, tmp_path, ending):
    writers = {
        "parquet": lambda path, frame: write_parquet(path, frame, row_group_size=5),
        "csv": write_csv,
        "jsonl": write_json,
    }
    folder = tmp_path / "many"
    (folder / "a-b").mkdir(parents=True)
    # The longest file is not the first: Spark packs files by size.
    for name, begin, end in (("a b", 0, 8), ("a-b/deep", 8, 50), ("é", 50, 60)):
        writers[ending](folder / f"{name}.{ending}", FRAME.iloc[begin:end])
    if ending != "parquet":
        (folder / f"0.{ending}").write_bytes(b"")
    whole = read(folder)
    assert whole[ROW_ID].tolist() == list(range(60)) == whole["place"].tolist()
    with cut(spark, 128):
        pd.testing.assert_frame_equal(read(folder), whole)


def test_types_are_those_of_all_rows_however_spark_cuts_the_files(spark, read, converted, tmp_path):
    lines = [
        f"{i},{i},{'' if i < 900 else i},2024-01-{i % 28 + 1:02}{' 10:00' if i == 950 else ''},00{i},{i}"
        for i in range(1000)
    ]
    lines[700] = lines[700].replace("700", "700.5", 1)
    lines[800] = lines[800].removesuffix("800") + "A7"
    folder = tmp_path / "t"
    folder.mkdir()
    for part in range(3):
        some = ["number,whole,late,when,code,mixed", "", *lines[part * 400 : part * 400 + 400]]
        (folder / f"{part}.csv").write_text("\r\n".join(some), encoding="utf-8")
    expected = converted(folder).read().to_pandas()
    assert [str(kind) for kind in expected.dtypes] == [
        "float64", "int64", "float64", "datetime64[us]", "int64", "object",
    ]  # fmt: skip
    assert expected["number"].sum() == sum(range(1000)) + 0.5 and expected["mixed"][800] == "A7"
    with cut(spark, 3000):
        found = read(folder)
    assert found.pop(ROW_ID).tolist() == list(range(1000))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_folders_named_by_a_column_keep_that_column(read, tmp_path, write):
    for year, begin, end in ((2023, 0, 20), (2024, 20, 60)):
        write(tmp_path / "t" / f"year={year}" / f"x.{write.__name__[6:]}", FRAME.iloc[begin:end])
    for folder in (tmp_path / "t", tmp_path / "t" / "year=2023"):
        (folder / "README.md").write_text("not a row", encoding="utf-8")
    source = find_source(str(tmp_path / "t"))
    assert source.is_opened_by_spark
    found = read(source)
    assert found["year"].tolist() == [2023] * 20 + [2024] * 40
    assert found["place"].tolist() == found[ROW_ID].tolist() == list(range(60))


def test_a_table_of_the_catalog_is_read_in_the_order_of_its_content(spark, read):
    frame = pd.DataFrame({"x": range(40), "y": ["a", "b"] * 20, "v": np.arange(40.0) % 7})
    table = spark.createDataFrame(frame).selectExpr("*", "NULL AS nothing", "map('k', x) AS pairs")
    table.createTempView("sales")
    try:
        whole = read("table:sales")
        table.repartition(5).createOrReplaceTempView("sales")
        cut = read("table:sales")
    finally:
        spark.catalog.dropTempView("sales")
    pd.testing.assert_frame_equal(whole, cut)
    assert whole[ROW_ID].tolist() == list(range(40)) == sorted(whole["x"])
    assert whole["nothing"].isna().all()


def test_a_missing_table_of_the_catalog_is_answered_with_the_nearest_name(spark, read, refused):
    spark.range(3).createTempView("sales")
    try:
        text = refused(read, "table:salse")
        odd = refused(read, "table:no such name")
    finally:
        spark.catalog.dropTempView("sales")
    assert "table:salse: the catalog has no such table. Did you mean 'sales'?" in text
    assert "the catalog has no such table" in odd


def without_footer(data):
    size = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - size] + b"\xff" * size + data[-8:]


DAMAGES = {
    "cut": lambda data: data[:-100],
    "footer": without_footer,
    "page": lambda data: data[:4] + b"\xff" * 56 + data[60:],
    "text": lambda data: b"no parquet at all, only text\n" * 9,
}


@pytest.mark.parametrize("by", ["arrow", "held"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_parquet_is_refused(prepare, refused, tmp_path, damage, by):
    path = tmp_path / "a.parquet"
    write_parquet(path, pd.DataFrame({"x": np.random.default_rng(0).random(5000)}))
    path.write_bytes(damage(path.read_bytes()))
    text = refused(prepare, path, "x", by=by)
    assert "cannot be read as parquet: it is damaged, cut short, or in another format. Check the file" in text


HEADED = "the header has 3. Give each row as many, and write no line break inside a quoted value."
NOT_UTF8 = "is not UTF-8 text. Save the file as UTF-8, or name its encoding in data.encoding."
NO_OBJECT = "is not one JSON object. Write one object in each line."


CUT_GZIP = gzip.compress(b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i % 97) for i in range(50_000)))[:50_000]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"x,y,z\n1,2,3\n\n4,5\n", f"line 4 has 2 values, {HEADED}"),
        ("a.csv", b"x,y,z\r\n1,2,3\r\n6,7,8,9", f"line 3 has 4 values, {HEADED}"),
        ("a.csv", b'x,y\n0,1\n1,"two\nlines"\n', "line 3 has a line break inside a quoted value"),
        ("a.csv", b'x,y\n0,1\n1,"caf\xe9"\n', f"line 3 {NOT_UTF8}"),
        ("a.csv", b"x,y,x\n1,2,3\n", "duplicate column names: x"),
        ("a.csv", b"x,y\n\n", "the table has no rows"),
        ("a.csv", b"\n\n", "the table has no rows"),
        ("a.csv.gz", CUT_GZIP, "Check the file, or write it again."),
        ("a.json", b'[{"x": 1},\n{"x": 2}]\n', f"line 1 {NO_OBJECT}"),
        ("a.json", b'{"x": 1}\n\n{"x":\n', f"line 3 {NO_OBJECT}"),
        ("a.json", b'null\n{"x": 1}\n', f"line 1 {NO_OBJECT}"),
        ("a.orc", os.urandom(64) * 9, "cannot be read as orc: it is damaged"),
    ],
)
def test_a_local_table_that_cannot_be_read_is_refused_with_the_line(
    converted, read, refused, tmp_path, name, content, words
):
    (tmp_path / name).write_bytes(content)
    text = refused(converted, tmp_path / name)
    assert words in text
    if "line" in words:  # Spark knows rows
        words = re.sub(r"^line \d+", "(in the order of the files)", words)
    assert words in refused(read, tmp_path / name)


def typed(*kinds):
    return [pa.table({"x": pa.array([1, 2]).cast(kind), "y": [1, 2]}) for kind in kinds]


def twice(*arrays):
    return pa.Table.from_arrays(list(map(pa.array, arrays)), names=["x", "x"])


DISAGREE = "its files disagree on the type of a column"
NANO, MICRO = pa.timestamp("ns"), pa.timestamp("us")


@pytest.mark.parametrize("by", ["arrow", "held"])
@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (typed(pa.int32(), pa.string()), DISAGREE),
        ([*typed(pa.string(), pa.int64()), pa.table({"y": [1]})], DISAGREE),
        (typed(NANO, MICRO), DISAGREE),
        (typed(MICRO, NANO), DISAGREE),
        ([twice([1], [2])], "it has duplicate column names"),
        ([twice([1], [2.5])], "it has duplicate column names"),
    ],
)
def test_parquet_that_disagrees_with_itself_is_refused(prepare, refused, folder, tables, words, by):
    path = folder(tables)
    assert f"{path}: cannot be read as parquet: {words}" in refused(prepare, path, "y", by=by)


@pytest.mark.parametrize("kinds", [(pa.int32(), pa.string()), (pa.string(), pa.float64())])
def test_orc_files_that_disagree_on_a_type_are_refused(read, converted, refused, folder, kinds):
    path = folder([*typed(*kinds), pa.table({"y": [1]})], "orc")
    expected = f"{path}: cannot be read as orc: {DISAGREE} ('x'). Write them again with one schema."
    assert refused(read, path) == refused(converted, path) == expected


def test_a_type_that_spark_does_not_know_is_refused(read, refused, folder):
    path = folder([pa.table({"t": pa.array([1], pa.time64("us"))})])
    words = "a column of type INT64 (TIME(MICROS,false)), which Spark does not support"
    assert words in refused(read, path)


def test_a_dead_python_worker_is_no_damaged_file(spark):
    def die(batches):
        os._exit(1)
        yield from batches

    source = Source(name="a.csv", location="a.csv", format="csv")
    with pytest.raises(Exception, match="Python worker exited") as caught, refusing_unreadable(source):
        spark.range(3).mapInArrow(die, "id long").collect()
    assert not isinstance(caught.value, DataError)
