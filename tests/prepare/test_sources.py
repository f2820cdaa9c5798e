"""Tables of every format through Spark: what is read, in which order, and how the rest is refused."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.reader import open_source, refusing_unreadable
from sparkgpu.prepare.row_id import with_row_id
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
def read(spark):
    """All rows by row id, as preparation reads them."""

    def rows(path):
        source = path if isinstance(path, Source) else find_source(str(path))
        with refusing_unreadable(source):
            table = with_row_id(open_source(spark, source), source)
            return table.toPandas().sort_values(ROW_ID, ignore_index=True)

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
def test_each_kind_of_file_is_read_whole_and_in_its_order(read, tmp_path, write):
    found = read(write(tmp_path))
    assert found[ROW_ID].tolist() == list(range(60))
    for column in FRAME:
        assert found[column].tolist() == FRAME[column].tolist()


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


def test_a_partitioned_folder_gives_its_folder_names_as_a_column(read, tmp_path):
    write_parquet(tmp_path / "t" / "year=2023" / "x.parquet", FRAME.iloc[:20])
    write_parquet(tmp_path / "t" / "year=2024" / "x.parquet", FRAME.iloc[20:])
    found = read(tmp_path / "t")
    assert found["year"].tolist() == [2023] * 20 + [2024] * 40
    assert found["place"].tolist() == found[ROW_ID].tolist() == list(range(60))


def test_a_table_of_the_catalog_is_read_and_a_missing_one_is_answered_with_the_nearest_name(
    spark, prepare, refused
):
    words = pd.DataFrame({"x": range(40), "y": ["a", "b"] * 20, "nothing": None, "v": np.arange(40.0) % 7})
    spark.createDataFrame(words.drop(columns="nothing")).selectExpr("*", "NULL AS nothing").createTempView(
        "sales"
    )
    try:
        once, cut = prepare("table:sales", "y"), None
        spark.table("sales").repartition(5).createOrReplaceTempView("sales")
        cut = prepare("table:sales", "y")
        text = refused(prepare, "table:salse", "y")
        odd = refused(prepare, "table:no such name", "y")
    finally:
        spark.catalog.dropTempView("sales")
    assert once.schema.rows == 40 and once.schema.task == "binary"
    assert once.dropped == {"nothing": "no values: every row is null"}
    pd.testing.assert_frame_equal(once.table(), cut.table())
    assert "table:salse: the catalog has no such table. Did you mean 'sales'?" in text
    assert "the catalog has no such table" in odd


def test_numbers_with_marks_for_missing_values_are_numbers_and_codes_are_not(prepare, tmp_path):
    lines = ["number,seat,mixed,gap,none,y"]
    lines += [
        f"{'NA' if i % 5 == 0 else i * 0.5},{10 + i % 4}{'DF'[i % 2]},{i % 3 if i % 2 else 'F'},"
        f"{'inf' if i == 3 else '?' if i % 2 else i},NA,{i % 2}"
        for i in range(60)
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = prepare(tmp_path / "a.csv", "y")
    assert found.kinds == {
        "number": "numeric",
        "seat": "categorical",
        "mixed": "categorical",
        "gap": "numeric",
    }
    assert found.dropped == {"none": "no values: every row is null"}
    assert found.schema.notes == ("1 infinite values in 'gap' count as missing",)
    table = found.table()
    assert table["seat"].tolist()[:3] == ["10D", "11F", "12D"]
    assert table["number"].isna().tolist() == [i % 5 == 0 for i in range(60)]
    assert table["gap"].tolist()[2] == 2 and table["gap"].isna().sum() == 30


def test_moments_of_pandas_in_nanoseconds_are_moments(prepare):
    when = pd.Series(pd.date_range("2024-01-01 06:00", periods=60, freq="h"))
    columns = {
        "naive": pa.array(when, pa.timestamp("ns")),
        "aware": pa.array(when.dt.tz_localize("UTC"), pa.timestamp("ns", tz="UTC")),
        "y": [i % 2 for i in range(60)],
    }
    found = prepare(columns, "y")
    parts = ["month", "day", "weekday", "hour", "days since 1970"]
    assert list(found.kinds) == [
        f"{name} ({p})" for name in ("naive", "aware") for p in parts if p != "month"
    ]
    assert found.table()["naive_hour"].tolist() == when.dt.hour.tolist()
    assert found.table()["aware_days_since_1970"].tolist()[0] == pytest.approx(19723.25)


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


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (text_file("a.csv", b"x,y,z\n1,2,3\n4,5\n"), "rows that do not fit the header"),
        (text_file("a.csv", b"x,y,z\n1,2,3\n6,7,8,9\n"), "rows that do not fit the header"),
        (text_file("a.csv", b'x,y\n1,"two\nlines"\n'), "a line break inside a value"),
        (text_file("a.csv", b"x,y,x\n1,2,3\n"), "duplicate column names: x"),
        (cut_gzip, "damaged, cut short"),
        (text_file("a.json", b'[{"x": 1},\n{"x": 2}]\n'), "lines that are not one JSON object each"),
        (text_file("a.json", b'{"x": 1}\n{"x":\n'), "lines that are not one JSON object each"),
        (text_file("a.orc", os.urandom(64) * 9), "cannot be read as orc: it is damaged"),
        (differing_files, "its files disagree on the type of a column"),
        (duplicate_names, "duplicate column names"),
        (duplicate_names_of_two_types, "duplicate column names"),
        (unknown_type, "a column of type INT64 (TIME(MICROS,false)), which Spark does not support"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(read, refused, tmp_path, write, words):
    assert words in refused(read, write(tmp_path))


def test_text_in_another_encoding_is_refused_even_where_the_header_is_plain(prepare, refused, tmp_path):
    lines = "x,word,y\n" + "".join(f"{i % 7},caf{'é' if i == 30 else 'e'},{i % 2}\n" for i in range(60))
    (tmp_path / "a.csv").write_bytes(lines.encode("latin-1"))
    assert "it is not UTF-8 text" in refused(prepare, tmp_path / "a.csv", "y")
    (tmp_path / "b.csv").write_text(lines.replace("é", "\ufffd"), encoding="utf-8")
    assert prepare(tmp_path / "b.csv", "y").schema.rows == 60


def test_a_table_without_rows_is_refused(prepare, refused):
    assert "the table has no rows" in refused(prepare, {"x": pa.array([], pa.int32()), "y": []}, "y")
