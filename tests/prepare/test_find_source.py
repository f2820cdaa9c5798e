"""What SOURCE may be, recognised from its text and the files there; no JVM."""

from __future__ import annotations

import pytest

from sparkgpu.core.table.source import find_source, table_files
from sparkgpu.prepare.text_files import TextFiles


@pytest.fixture
def file(tmp_path):
    def make(name, content=b"a,b\n1,2\n"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return make


NOT_UTF8 = "is not UTF-8 text. Save the file as UTF-8, or name its encoding in data.encoding."


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


@pytest.mark.parametrize(
    ("files", "asked", "words"),
    [
        ({}, "table:", "names no table"),
        *(
            ({name: b"1"}, name, "its format is unknown")
            for name in ("a.xlsx", "a", "a.gz", "a.csv.zip", "a.tar.gz", "a.parquet.gz")
        ),
        ({"flights.csv": b"1"}, "flihgts.csv", "there is no such file. Did you mean 'flights.csv'?"),
        ({}, "nowhere/a.csv", "There is no folder"),
        ({"a.csv": b""}, "a.csv", "the file is empty"),
        ({"t/_SUCCESS": b"1", "t/.part.crc": b"1"}, "t", "it holds no files"),
        ({"t/part-0.csv": b""}, "t", "every file in the folder is empty"),
        ({"t/0.csv": b"1", "t/1.parquet": b"1"}, "t", "mixes csv, parquet files"),
        ({"t/0.csv": b"1", "t/1.csv.zip": b"1"}, "t", "its format is unknown (.zip)"),
        ({"t/README.md": b"1", "t/0": b"1"}, "t", "none of its files is of a known format (0, README.md)"),
        (
            {"t/1.parquet": b"1", "t/2.parquet": b""},
            "t",
            "2.parquet in this folder is empty (0 bytes), not a",
        ),
    ],
)
def test_a_source_that_cannot_be_a_table_is_refused(file, tmp_path, refused, files, asked, words):
    for name, content in files.items():
        file(name, content)
    assert words in refused(find_source, asked if asked == "table:" else str(tmp_path / asked))


def test_empty_and_hidden_files_of_a_folder_do_not_count(file):
    for name in ("t/_SUCCESS", "t/.part.crc", "t/_x=1/part-2.csv"):
        file(name)
    assert find_source(str(file("t/part-0.csv", b"").parent)).format == "csv"


@pytest.mark.parametrize("name", ["0.parquet", "0.PQ", "0.csv", "0.csv.gz", "0.jsonl", "0.orc"])
def test_a_folder_is_read_by_its_data_files_and_a_note_names_the_others(file, tmp_path, name):
    for other in ("README.md", "LICENSE", "notes/columns.txt", "_SUCCESS", ".0.crc"):
        file(f"t/{other}", b"words")
    data = file(f"t/{name}")
    source = find_source(str(tmp_path / "t"))
    assert table_files(tmp_path / "t") == [data]
    (note,) = source.notes
    assert note.startswith(f"passed over LICENSE, README.md, notes/columns.txt in {tmp_path / 't'}: ")


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [
        ("a,b", ","), ("a;b", ";"), ("a\tb\tc", "\t"), ("a|b", "|"), ("a", ","), ('"x, y, z";b', ";"),
        ("\n\na;b", ";"),
    ],
)  # fmt: skip
def test_the_header_tells_the_delimiter(file, header, delimiter):
    assert TextFiles(find_source(str(file("a.csv", f"{header}\n1\n".encode())))).parser.delimiter == delimiter


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"1.csv": b"\xef\xbb\xbfa,b,a\n1,2,3\n"}, "duplicate column names: a."),
        ({"1.csv": b"a,b\n1,2\n", "2.csv": b"b,a\n1,2\n"}, "the header of 2.csv differs from 1.csv"),
        ({"1.csv": "naïve,x\n1,1\n".encode("utf-16")}, f"line 1 {NOT_UTF8}"),
        ({"1.csv.gz": b"a,b\n1,2\n"}, "cannot be read"),
    ],
)
def test_text_files_without_one_readable_header_are_refused(file, tmp_path, refused, files, words):
    for name, content in files.items():
        file(f"t/{name}", content)
    assert words in refused(TextFiles, find_source(str(tmp_path / "t")))
