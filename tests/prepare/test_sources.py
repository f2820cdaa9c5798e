"""Tables of every format through Spark: what is read, in which order, and how the rest is refused."""

from __future__ import annotations

import gzip
import os
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkgpu.errors import DataError
from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.spark_source import open_numbered, refusing_unreadable
from sparkgpu.prepare.to_parquet import to_parquet
from sparkgpu.table.source import Source, find_source

pytestmark = pytest.mark.spark

FRAME = pd.DataFrame(
    {
        "place": range(60),
        "word": [f"w{i % 7}, {i % 3}" for i in range(60)],
        "half": [i / 2 for i in range(60)],
    }
)


@pytest.fixture
def read(spark, tmp_path_factory):
    """All rows by row id, as Spark opens them."""

    def rows(path):
        source = path if isinstance(path, Source) else find_source(str(path))
        with refusing_unreadable(source):
            table = open_numbered(spark, source, tmp_path_factory.mktemp("scratch"))
            return table.toPandas().sort_values(ROW_ID, ignore_index=True)

    return rows


@pytest.fixture
def converted(tmp_path_factory):
    """The rows of the Parquet file that a local table becomes."""

    def rows(path):
        return pq.read_table(
            to_parquet(find_source(str(path)), tmp_path_factory.mktemp("scratch")).location
        ).to_pandas()

    return rows


def write_csv(path, frame=FRAME, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, **options)
    return path


def write_parquet(path, frame=FRAME, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, **options)
    return path


def write_orc(path):
    pa.orc.write_table(pa.Table.from_pandas(FRAME), path)
    return path


def write_json(path):
    FRAME.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_parquet(folder / "a.parquet"),
        lambda folder: write_parquet(folder / "odd [1]{a} 100%#é.parquet"),
        lambda folder: write_csv(folder / "a.csv"),
        lambda folder: write_csv(folder / "odd [1]*{a} 100%#é.csv"),
        lambda folder: write_csv(folder / "a.csv.gz"),
        lambda folder: write_csv(folder / "a.csv", sep=";"),
        lambda folder: write_csv(folder / "a.tsv", sep="\t", encoding="utf-8-sig"),
        lambda folder: write_orc(folder / "a.orc"),
        lambda folder: write_json(folder / "a.jsonl"),
    ],
    ids=["parquet", "odd-parquet", "csv", "odd-csv", "csv.gz", "semicolon", "tab-bom", "orc", "json"],
)
def test_each_kind_of_file_is_read_whole_and_in_its_order_with_and_without_spark(
    read, converted, tmp_path, write
):
    path = write(tmp_path)
    found = read(path)
    assert found.pop(ROW_ID).tolist() == list(range(60))
    pd.testing.assert_frame_equal(found, FRAME)
    pd.testing.assert_frame_equal(converted(path), FRAME)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_folder_is_read_by_file_name_however_spark_cuts_it(spark, read, tmp_path, ending):
    writers = {
        "parquet": lambda path, frame: write_parquet(path, frame, row_group_size=5),
        "csv": write_csv,
        "jsonl": lambda path, frame: frame.to_json(path, orient="records", lines=True),
    }
    folder = tmp_path / "many"
    folder.mkdir()
    # The longest file is not the first: Spark packs files by size.
    for name, begin, end in (("a b", 0, 8), ("a-b", 8, 50), ("é", 50, 60)):
        writers[ending](folder / f"{name}.{ending}", FRAME.iloc[begin:end])
    if ending != "parquet":
        (folder / f"0.{ending}").write_bytes(b"")
    whole = read(folder)
    for size in ("300", "128"):
        spark.conf.set("spark.sql.files.maxPartitionBytes", size)
        spark.conf.set("spark.sql.files.openCostInBytes", "1")
        try:
            cut = read(folder)
        finally:
            spark.conf.unset("spark.sql.files.maxPartitionBytes")
            spark.conf.unset("spark.sql.files.openCostInBytes")
        pd.testing.assert_frame_equal(cut, whole)
    assert whole[ROW_ID].tolist() == list(range(60)) == whole["place"].tolist()


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
    expected = converted(folder)
    assert [str(kind) for kind in expected.dtypes] == [
        "float64", "int64", "float64", "datetime64[us]", "int64", "object",
    ]  # fmt: skip
    assert expected["number"].sum() == sum(range(1000)) + 0.5 and expected["mixed"][800] == "A7"
    spark.conf.set("spark.sql.files.maxPartitionBytes", "3000")
    try:
        found = read(folder)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert found.pop(ROW_ID).tolist() == list(range(1000))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_text_in_folders_named_by_a_column_keeps_that_column(read, tmp_path):
    for year, begin in ((2023, 0), (2024, 20)):
        write_csv(tmp_path / "t" / f"year={year}" / "x.csv", FRAME.iloc[begin : begin + 20])
    source = find_source(str(tmp_path / "t"))
    assert source.is_opened_by_spark
    found = read(source)
    assert found["place"].tolist() == found[ROW_ID].tolist() == list(range(40))
    assert found["year"].tolist() == [2023] * 20 + [2024] * 20


def test_a_partitioned_folder_gives_its_folder_names_as_a_column(read, tmp_path):
    write_parquet(tmp_path / "t" / "year=2023" / "x.parquet", FRAME.iloc[:20])
    write_parquet(tmp_path / "t" / "year=2024" / "x.parquet", FRAME.iloc[20:])
    found = read(tmp_path / "t")
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


def test_timestamps_of_pandas_in_nanoseconds_are_timestamps(read, tmp_path):
    when = pd.Series(pd.date_range("2024-01-01 06:00", periods=60, freq="h"))
    aware = when.dt.tz_localize("UTC")
    table = pa.table({"naive": pa.array(when, pa.timestamp("ns")), "aware": pa.array(aware)})
    pq.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert found["naive"].tolist() == when.tolist()
    assert (found["aware"].astype("int64") - found["aware"].astype("int64")[0]).nunique() == 60


def test_a_column_called_like_sparks_own_metadata_is_a_column(read, tmp_path):
    found = read(write_parquet(tmp_path / "a.parquet", pd.DataFrame({"_metadata": [5, 6], "y": [1, 2]})))
    assert found["_metadata"].tolist() == [5, 6] and found[ROW_ID].tolist() == [0, 1]


def damaged(folder, kind):
    path = folder / "a.parquet"
    write_parquet(path, pd.DataFrame({"x": np.random.default_rng(0).random(5000)}))
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little")
    if kind == "cut":
        data = data[:-100]
    elif kind == "footer":
        data[-8 - footer : -8] = b"\xff" * footer
    elif kind == "page":
        data[4:60] = b"\xff" * 56
    else:
        data = bytearray(b"no parquet at all, only text\n" * 9)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", ["cut", "footer", "page", "text"])
def test_damaged_parquet_is_refused(read, refused, tmp_path, kind):
    text = refused(read, damaged(tmp_path, kind))
    assert "cannot be read as parquet: it is damaged, cut short, or in another format. Check the file" in text


def cut_gzip(folder):
    data = gzip.compress(b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i % 97) for i in range(50_000)))
    (folder / "a.csv.gz").write_bytes(data[: len(data) // 2])
    return folder / "a.csv.gz"


def text_file(name, content):
    def write(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return write


def differing_files(folder):
    write_parquet(folder / "t" / "1.parquet", pd.DataFrame({"x": [1]}))
    write_parquet(folder / "t" / "2.parquet", pd.DataFrame({"x": ["a"]}))
    return folder / "t"


def duplicate_names(folder):
    pq.write_table(
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]), folder / "a.parquet"
    )
    return folder / "a.parquet"


def duplicate_names_of_two_types(folder):
    pq.write_table(
        pa.Table.from_arrays([pa.array([1]), pa.array([2.5])], names=["x", "x"]), folder / "a.parquet"
    )
    return folder / "a.parquet"


def unknown_type(folder):
    pq.write_table(pa.table({"t": pa.array([1], pa.time64("us"))}), folder / "a.parquet")
    return folder / "a.parquet"


HEADED = "the header has 3. Give each row as many, and write no line break inside a quoted value."
NO_OBJECT = "is not one JSON object. Write one object in each line."


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (text_file("a.csv", b"x,y,z\n1,2,3\n\n4,5\n"), f"line 4 has 2 values, {HEADED}"),
        (text_file("a.csv", b"x,y,z\r\n1,2,3\r\n6,7,8,9"), f"line 3 has 4 values, {HEADED}"),
        (text_file("a.csv", b'x,y\n0,1\n1,"two\nlines"\n'), "line 3 has a line break inside a quoted value"),
        (text_file("a.csv", b'x,y\n0,1\n1,"caf\xe9"\n'), "line 3 is not UTF-8 text. Save the file as UTF-8."),
        (text_file("a.csv", b"x,y,x\n1,2,3\n"), "duplicate column names: x"),
        (text_file("a.csv", b"x,y\n\n"), "the table has no rows"),
        (text_file("a.csv", b"\n\n"), "the table has no rows"),
        (cut_gzip, "Check the file, or write it again."),
        (text_file("a.json", b'[{"x": 1},\n{"x": 2}]\n'), f"line 1 {NO_OBJECT}"),
        (text_file("a.json", b'{"x": 1}\n\n{"x":\n'), f"line 3 {NO_OBJECT}"),
        (text_file("a.json", b'null\n{"x": 1}\n'), f"line 1 {NO_OBJECT}"),
        (text_file("a.orc", os.urandom(64) * 9), "cannot be read as orc: it is damaged"),
    ],
)
def test_a_local_table_that_cannot_be_read_is_refused_with_the_line(
    converted, read, refused, tmp_path, write, words
):
    text = refused(converted, write(tmp_path))
    assert words in text
    if "line" in words:  # Spark knows rows
        words = re.sub(r"^line \d+", "(in the order of the files)", words)
    assert words in refused(read, write(tmp_path))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (differing_files, "its files disagree on the type of a column"),
        (duplicate_names, "duplicate column names"),
        (duplicate_names_of_two_types, "duplicate column names"),
        (unknown_type, "a column of type INT64 (TIME(MICROS,false)), which Spark does not support"),
    ],
)
def test_parquet_that_spark_cannot_read_is_refused_with_a_reason(read, refused, tmp_path, write, words):
    assert words in refused(read, write(tmp_path))


def test_a_dead_python_worker_is_no_damaged_file(spark):
    def die(batches):
        os._exit(1)
        yield from batches

    source = Source(name="a.csv", location="a.csv", format="csv")
    with pytest.raises(Exception, match="Python worker exited") as caught, refusing_unreadable(source):
        spark.range(3).mapInArrow(die, "id long").collect()
    assert not isinstance(caught.value, DataError)
