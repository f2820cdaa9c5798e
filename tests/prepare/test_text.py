"""Tables of texts: their types, what means missing, and what is refused, whoever reads them."""

from __future__ import annotations

import bz2
import gzip
import itertools
import random

import pyarrow as pa
import pytest

from sparkgpu.core.table.source import find_source
from sparkgpu.predict.readers import read_json_lines
from sparkgpu.prepare import text_files
from sparkgpu.prepare.column_values import MISSING_TEXTS
from sparkgpu.prepare.csv_lines import CsvParser
from sparkgpu.prepare.text import unified

INTEGER, FLOAT, BOOLEAN, DATE, TEXT = pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.string()
TIMESTAMP, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.fixture
def made(converted, tmp_path):
    """The Parquet file that a table of this text becomes."""

    def run(content, name="a.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="")
        return converted(path.parent if "/" in name else path)

    return run


def column(*texts):
    return "x,other\n" + "".join(f"{text},0\n" for text in texts)


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "-2", "007", " 3 "], INTEGER, [1, -2, 7, 3]),
        (["1", "2.5", "1e3", "+5", ".5", "5."], FLOAT, [1, 2.5, 1000, 5, 0.5, 5]),
        (["1", "9223372036854775808"], FLOAT, [1, 2.0**63]),
        (["1", "inf", "-Infinity"], FLOAT, [1, float("inf"), -float("inf")]),
        (["true", "FALSE", "True"], BOOLEAN, [True, False, True]),
        (["1", "true"], TEXT, ["1", "true"]),
        (["2024-02-29", "1899-12-31"], DATE, None),
        (["2024-02-29", "2024-02-29 12:30"], TIMESTAMP, None),
        (["2024-02-29T12:30:59.123456", "2024-02-29 12:30"], TIMESTAMP, None),
        (["2024-02-29T12:30:59Z", "2024-02-29T12:30:59+05:30"], ZONED, None),
        (["2024-02-29T12:30:59Z", "2024-02-29T12:30:59"], TEXT, None),
        (["2024-02-29 12:30:59.1234567"], TEXT, None),
        (["2024-02-30"], TEXT, None),
        ([" 2024-02-29"], TEXT, None),
        (["12:30", "12:31"], TEXT, ["12:30", "12:31"]),
        (["0x1F", "10"], TEXT, ["0x1F", "10"]),
        (["12D", "14F"], TEXT, ["12D", "14F"]),
        (["yes", " b ", '" c"'], TEXT, ["yes", " b ", " c"]),
        (["5", *MISSING_TEXTS], INTEGER, [5] + [None] * len(MISSING_TEXTS)),
        (["a", '"NA"', '""', "None"], TEXT, ["a", None, None, "None"]),
        (["5", " NA"], TEXT, ["5", " NA"]),
        (["NA", ""], TEXT, [None, None]),
    ],
)
def test_a_csv_column_has_the_narrowest_type_that_all_its_texts_have(made, texts, kind, values):
    found = made(column(*texts)).read()["x"]
    assert found.type == kind
    assert values is None or found.to_pylist() == values


ANY = [
    "", "0", "-7", "007", " 3 ", "0x1F", "1.5", "1e400", "inf", "true", "FALSE", "t", "2024-02-29",
    " 2024-02-29",
    "2024-02-29 12", "2024-02-29T12:30", "2024-02-29 12:30:59.5", "2024-02-29 12:30:59.1234567",
    "1500-01-01 00:00:00.5", "9999-12-31", "2024-02-29T12:30Z", "12:30", "word", "é", "9223372036854775808",
]  # fmt: skip


def test_types_do_not_depend_on_the_parts_in_which_a_table_is_read():
    parser = CsvParser(delimiter=",", names=("x", "other"))
    draw = random.Random(0)
    some = [*itertools.product(ANY, ANY), *(draw.sample(ANY, 4) for _ in range(100))]
    for texts in some:
        lines = [f"{text},0\n".encode() for text in texts]
        types = unified(*map(parser.infer, lines))
        tables = [parser.read(line, types) for line in lines]
        assert None not in tables, (texts, types)
        whole = parser.infer(b"".join(lines))
        assert whole == types or types["x"] == TEXT, (texts, types, whole)
        joined = pa.concat_tables(tables)
        assert joined.equals(parser.read(b"".join(lines), types).combine_chunks()), texts


@pytest.mark.parametrize("block_bytes", [1 << 20, 40])
def test_json_keeps_its_own_types_and_what_has_none_is_text(made, monkeypatch, block_bytes):
    monkeypatch.setattr(text_files, "BLOCK_BYTES", block_bytes)
    found = made(
        '{"i":1,"f":1,"b":true,"t":"2024-01-01","mixed":1,"list":[1,2],"n":null}\n'
        '{"i":2,"f":2.5,"b":null,"t":"NA","mixed":"a","late":{"é":1},"big":123456789012345678901234}\n',
        "a.json",
    ).read()
    assert found.to_pydict() == {
        "i": [1, 2], "f": [1.0, 2.5], "b": [True, None], "t": ["2024-01-01", "NA"], "mixed": ["1", "a"],
        "list": ["[1, 2]", None], "n": [None, None], "late": [None, '{"é": 1}'],
        "big": [None, 1.2345678901234568e23],
    }  # fmt: skip


PACKED = {"csv": bytes, "csv.gz": gzip.compress, "csv.bz2": bz2.compress, "jsonl": bytes}


@pytest.mark.parametrize("ending", PACKED)
@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize(("late", "kind"), [("1.5", FLOAT), ('"A7"', TEXT), ("null", INTEGER)])
def test_all_rows_are_there_in_order_and_a_late_value_changes_the_type(
    converted, tmp_path, monkeypatch, ending, files, late, kind
):
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 100)
    (folder := tmp_path / "t").mkdir()
    values = [late if i == 580 else str(i) for i in range(600)]
    for part in range(files):
        some = values[part * 600 // files : (part + 1) * 600 // files]
        if ending == "jsonl":
            lines = [f'{{"x":{value},"w":"é"}}' for value in some]
        else:
            lines = ["x,w", *(f"{value},é" for value in some)]
        (folder / f"{part}.{ending}").write_bytes(PACKED[ending]("\n".join(lines).encode()))
    found = converted(folder).read()
    assert found.schema.types == [kind, TEXT]
    expected = pa.array([None if v == "null" else v.strip('"') for v in values]).cast(kind)
    assert found["x"].combine_chunks() == expected


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
def test_delimiters_quotes_marks_and_line_ends_are_read_as_usual(made, delimiter):
    rows = [["a b", "", "c"], ["1", '"x,;|\ty"', '"say ""z"""'], [], ["2", '5" pipe', "é"]]
    content = "\ufeff\r\n" + "\r\n".join(delimiter.join(row) for row in rows)
    assert made(content).read().to_pydict() == {
        "a b": [1, 2],
        "_c1": ["x,;|\ty", '5" pipe'],
        "c": ['say "z"', "é"],
    }


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("1\n", "has 1 value, the header has 2."),
        ('1,"a\n2,b"\n', "has a line break inside a quoted value"),
    ],
)
def test_a_fault_late_in_a_folder_is_refused_with_its_file_and_line(
    refused, made, monkeypatch, tmp_path, fault, words
):
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 64)
    made("x,y\n1,2\n", "t/1.csv")
    text = refused(made, "x,y\n\n" + "1,2\n" * 500 + fault + "1,2\n" * 50, "t/2.csv")
    assert f"{tmp_path / 't'}: line 503 of 2.csv {words}" in text


def test_row_groups_hold_many_rows_and_depend_on_the_table_alone(made, monkeypatch):
    monkeypatch.setattr("sparkgpu.prepare.to_parquet._GROUP_ROWS", 1_000)
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 700)
    found = [made(column(*range(10_000))).metadata for _ in range(2)]
    sizes = [[one.row_group(i).num_rows for i in range(one.num_row_groups)] for one in found]
    assert sizes[0] == sizes[1] and max(sizes[0]) == 1_000 and len(sizes[0]) < 30


def test_new_rows_of_json_have_all_wanted_columns_in_each_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 40)
    lines = ['{"a":1,"c":"2024-01-01"}'] * 9 + ['{"a":1.5,"b":true}'] * 9
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    batches = list(read_json_lines(find_source(str(tmp_path / "a.jsonl")), ["b", "c", "nowhere"]))
    assert len(batches) > 3 and {tuple(batch.schema.names) for batch in batches} == {("b", "c")}
    assert [value for batch in batches for value in batch.column("b").to_pylist()] == [None] * 9 + [True] * 9
