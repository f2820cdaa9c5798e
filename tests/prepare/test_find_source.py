"""What SOURCE may be, recognised from its text and the files there; no JVM."""

from __future__ import annotations

import pytest

from sparkgpu.prepare.text_files import TextFiles
from sparkgpu.table.source import find_source


@pytest.fixture
def file(tmp_path):
    def make(name, content=b"a,b\n1,2\n"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return make


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.parquet", "parquet"), ("a.PQ", "parquet"), ("part-0.snappy.parquet", "parquet"),
        ("a.csv", "csv"), ("a.CSV.GZ", "csv"), ("a.tsv.bz2", "csv"), ("my data.v2.csv", "csv"),
        ("a.orc", "orc"), ("a.jsonl", "json"), ("a.json.gz", "json"),
    ],
)  # fmt: skip
def test_the_ending_says_how_a_file_is_stored(file, name, format):
    assert find_source(str(file(name))).format == format


def test_a_catalog_table_and_a_remote_address_need_no_file():
    assert find_source("table:sales.orders").format is None
    assert find_source("s3a://bucket/orders.parquet/").format == "parquet"


def test_a_table_without_a_name_is_refused(refused):
    assert "names no table" in refused(find_source, "table:")


@pytest.mark.parametrize("name", ["a.zip", "a.csv.zip", "a.csv.zst", "a.tar.gz", "a.csv.xz", "a.csv.deflate"])
def test_archives_are_refused(file, refused, name):
    assert "archives cannot be read. Unpack it, or compress" in refused(find_source, str(file(name)))


def test_parquet_compressed_as_a_whole_is_refused(file, refused):
    assert "compressed inside" in refused(find_source, str(file("a.parquet.gz")))


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz"])
def test_an_unknown_ending_is_refused(file, refused, name):
    assert "its format is unknown" in refused(find_source, str(file(name)))


def test_a_missing_file_is_answered_with_the_nearest_name(file, refused):
    path = file("flights.csv")
    text = refused(find_source, str(path.with_name("flihgts.csv")))
    assert "there is no such file. Did you mean 'flights.csv'?" in text
    assert "There is no folder" in refused(find_source, str(path.parent / "nowhere" / "a.csv"))


def test_an_empty_file_in_a_parquet_folder_is_refused(file, refused):
    file("t/1.parquet")
    folder = file("t/2.parquet", b"").parent
    assert "2.parquet in this folder is empty (0 bytes), not a Parquet file." in refused(
        find_source, str(folder)
    )


def test_an_empty_file_is_refused(file, refused):
    assert "the file is empty" in refused(find_source, str(file("a.csv", b"")))


def test_a_folder_needs_files_of_one_kind_that_are_not_all_empty(file, refused):
    folder = file("t/_SUCCESS").parent
    assert "holds no files" in refused(find_source, str(folder))
    file("t/part-0.csv", b"")
    assert "every file in the folder is empty" in refused(find_source, str(folder))
    file("t/part-1.csv")
    file("t/_x=1/part-2.csv")
    file("t/.part.crc")
    assert find_source(str(folder)).format == "csv"
    file("t/more.parquet")
    text = refused(find_source, str(folder))
    assert "mixes csv, parquet files" in text or "mixes parquet, csv files" in text


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [
        ("a,b", ","),
        ("a;b", ";"),
        ("a\tb\tc", "\t"),
        ("a|b", "|"),
        ("a", ","),
        ('"x, y, z";b', ";"),
        ("\n\na;b", ";"),
    ],
)
def test_the_header_tells_the_delimiter(file, header, delimiter):
    assert TextFiles(find_source(str(file("a.csv", f"{header}\n1\n".encode())))).parser.delimiter == delimiter


def test_duplicate_names_in_a_header_are_refused(file, refused):
    path = file("a.csv", b"\xef\xbb\xbfa,b,a\n1,2,3\n")
    assert "duplicate column names: a." in refused(TextFiles, find_source(str(path)))


def test_files_with_different_headers_are_refused(file, refused):
    file("t/1.csv", b"a,b\n1,2\n")
    path = file("t/2.csv", b"b,a\n1,2\n")
    text = refused(TextFiles, find_source(str(path.parent)))
    assert "the header of 2.csv differs from 1.csv" in text


def test_text_in_another_encoding_is_refused(file, refused):
    source = find_source(str(file("a.csv", "naïve,x\n1,1\n".encode("utf-16"))))
    assert "line 1 is not UTF-8 text. Save the file as UTF-8." in refused(TextFiles, source)


def test_a_gzip_file_that_is_none_is_refused(file, refused):
    assert "cannot be read" in refused(TextFiles, find_source(str(file("a.csv.gz"))))
