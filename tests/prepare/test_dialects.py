"""Text tables with a separator, a decimal comma, dates and an encoding of their own, whoever reads them."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from ways import WAYS, by_ways

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.core.table.source import find_source
from sparkgpu.predict.readers import read_csv, read_json_lines
from sparkgpu.prepare.csv_lines import CsvParser
from sparkgpu.prepare.encoding import Encoder, labels
from sparkgpu.prepare.json_lines import JsonParser
from sparkgpu.prepare.text import unified

ROWS = 240
GERMAN = {"decimal": ",", "date_format": "%d.%m.%Y", "encoding": "latin-1"}


def rows(number: int = ROWS, start: int = 0) -> pd.DataFrame:
    drawn = np.random.default_rng(start)
    return pd.DataFrame(
        {
            "Größe": drawn.normal(1_500, 2_000, number).round(2),
            "Stück": drawn.integers(0, 3_000, number),
            "Tag": pd.Timestamp("2023-12-28") + pd.to_timedelta(np.arange(number) % 50, unit="D"),
            "Stadt": drawn.choice(["Köln", "Münster", "Bonn"], number),
            "Preis": drawn.normal(10, 3, number).round(3),
        }
    )


def german(frame: pd.DataFrame, *, grouped: bool = True) -> str:
    def number(value: float) -> str:
        text = f"{value:,}" if grouped else str(value)
        return text.translate(str.maketrans(",.", ".,"))

    written = frame.assign(
        **{name: frame[name].map(number) for name in ("Größe", "Preis")},
        Tag=frame["Tag"].dt.strftime("%d.%m.%Y"),
    )
    return written.to_csv(index=False, sep=";")


def keys(**dialect: str) -> dict[str, Any]:
    return {f"data.{name}": value for name, value in dialect.items()}


@pytest.fixture
def plain(prepare, tmp_path):
    rows().to_csv(tmp_path / "plain.csv", index=False)
    return prepare(tmp_path / "plain.csv", "Preis")


@pytest.mark.parametrize(("grouped", "by"), by_ways((False,), (True,)))
def test_a_german_table_gives_the_features_of_the_same_table_in_plain_csv(
    prepare, plain, tmp_path, by, grouped
):
    (tmp_path / "a.csv").write_bytes(german(rows(), grouped=grouped).encode("latin-1"))
    found = prepare(tmp_path / "a.csv", "Preis", keys(**GERMAN), by=by)
    assert found.schema.features == plain.schema.features
    assert found.schema.fingerprint == plain.schema.fingerprint
    pd.testing.assert_frame_equal(found.table(), plain.table())
    assert found.schema.notes == plain.schema.notes == ()


@pytest.mark.parametrize("by", WAYS)
def test_test_rows_are_read_in_the_same_dialect(prepare, tmp_path, by):
    (tmp_path / "a.csv").write_bytes(german(rows()).encode("latin-1"))
    (tmp_path / "test.csv").write_bytes(german(rows(60, 1)).encode("latin-1"))
    given = keys(**GERMAN, test=str(tmp_path / "test.csv"))
    table = prepare(tmp_path / "a.csv", "Preis", given, by=by).table()
    assert Counter(table["split"])["test"] == 60
    tested = table[table["split"] == "test"]
    assert tested["label"].tolist() == rows(60, 1)["Preis"].tolist()
    assert tested["Stadt"].tolist() == rows(60, 1)["Stadt"].tolist()


def test_new_rows_are_read_as_the_run_read_its_own(prepare, plain, tmp_path):
    (tmp_path / "a.csv").write_bytes(german(rows()).encode("latin-1"))
    schema = prepare(tmp_path / "a.csv", "Preis", keys(**GERMAN)).schema
    new = rows(50, 2)
    (tmp_path / "new.csv").write_bytes(german(new).encode("latin-1"))
    (batch,) = read_csv(find_source(str(tmp_path / "new.csv"), schema.dialect), None)
    encoder = Encoder(schema, {})
    found = encoder.rows(batch)
    expected = Encoder(plain.schema, {}).rows(pa.Table.from_pandas(new))
    np.testing.assert_array_equal(found.numeric_NF, expected.numeric_NF)
    np.testing.assert_array_equal(found.codes_NK, expected.codes_NK)
    np.testing.assert_array_equal(labels(batch["Preis"], schema), new["Preis"])
    assert encoder.findings.sentences() == []
    odd = batch.to_pandas().assign(Größe="1.5", Tag="31.02.2024")
    assert np.isnan(encoder.rows(pa.Table.from_pandas(odd)).numeric_NF[:, [0, -1]]).all()
    (said,) = encoder.findings.sentences()
    assert "cannot be read" in said and "'Größe' (50 of" in said and "'Tag' (50 of" in said


@pytest.mark.parametrize(("separator", "by"), by_ways(("|",), (",",)))
def test_whole_numbers_with_leading_zeros_are_said_to_be_read_as_numbers(prepare, tmp_path, by, separator):
    codes = {"PLZ": ["04109", "80331"], "Konto": ["91", " 007"], "Zahl": ["0", "10"], "Maß": ["0.5", "01"]}
    frame = pd.DataFrame(codes | {"Zeit": ["07:30", "08:00"]}).loc[np.arange(ROWS) // 20 % 2]
    frame.assign(y=np.arange(ROWS)).to_csv(tmp_path / "a.csv", index=False, sep=separator)
    found = prepare(tmp_path / "a.csv", "y", by=by)
    assert found.schema.notes == (
        "'PLZ', 'Konto' hold whole numbers with leading zeros, as codes have, and are read as numbers; "
        'data.roles = {"PLZ" = "categorical"} makes one a category',
    )
    assert found.table()["Konto"][[0, 20]].tolist() == [91, 7]
    roles = {"data.roles": {"PLZ": "categorical", "Konto": "categorical"}}
    found = prepare(tmp_path / "a.csv", "y", roles, by=by)
    assert (found.kinds["PLZ"], found.schema.notes) == ("categorical", ())
    assert found.schema.features[0].levels == ("04109", "80331")
    new = frame.iloc[[0, 20, 20]].assign(PLZ=["04109", "80331", "04110"])
    assert (Encoder(found.schema, {}).rows(pa.Table.from_pandas(new)).codes_NK[:, 0] >= 0).tolist() == [
        True,
        True,
        False,
    ]


ANY = [
    "", "12", "1,5", "1.234", "1.234,5", "-1.234.567,25", "1.5", "1,234.5", "1e3", "inf", "31.12.2024",
    "1.2.2024", "31.02.2024", "1.1.24", "2024-12-31", "2024-12-31 10:00", "2024-12-31T10:00Z", "10:30",
    "word", "true",
]  # fmt: skip


@pytest.mark.parametrize(
    ("decimal", "date_format"),
    [
        (",", "%d.%m.%Y"),
        pytest.param(None, "%d.%m.%Y %H:%M", marks=pytest.mark.slow),
        pytest.param(",", None, marks=pytest.mark.slow),
    ],
)
def test_types_do_not_depend_on_the_parts_in_which_a_table_is_read(decimal, date_format):
    parser = CsvParser(
        delimiter=";", names=("x", "z"), dialect=Dialect(decimal=decimal, date_format=date_format)
    )
    texts = [*ANY, "31.12.2024 23:59", "01.02.2024 7:05"]
    for some in [*itertools.combinations(texts, 2), *itertools.combinations(texts[::2], 3)]:
        lines = [f"{text};0\n".encode() for text in some]
        types = unified(*map(parser.infer, lines))
        whole = parser.infer(b"".join(lines))
        assert whole == types or types["x"] == pa.string(), (some, types, whole)
        joined = pa.concat_tables([parser.read(line, types) for line in lines])
        assert joined.equals(parser.read(b"".join(lines), types).combine_chunks()), some


@pytest.mark.parametrize(
    ("date_format", "texts", "iso"),
    [
        ("%d.%m.%Y", ["31.12.2024", "1.2.2024", ""], ["2024-12-31", "2024-02-01", None]),
        ("%d.%m.%Y", ["31.12.2024", "2024-02-29"], ["2024-12-31", "2024-02-29"]),
        ("%m/%d/%Y", ["12/31/2024"], ["2024-12-31"]),
        ("%d %b %y", ["05 jan 24"], ["2024-01-05"]),
        ("%d.%m.%Y %H:%M", ["31.12.2024 23:59"], ["2024-12-31 23:59:00"]),
        ("%m/%d/%Y %I:%M %p", ["12/31/2024 1:05 PM"], ["2024-12-31 13:05:00"]),
        ("%d.%m.%Y", ["31.12.2024", "31.02.2024"], None),
        ("%d.%m.%Y", ["31.12.24"], None),
        ("%d.%m.%Y", ["31.12.2024", "soon"], None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_column_of_dates_in_the_format_becomes_dates(date_format, texts, iso, kind):
    dialect = Dialect(date_format=date_format)
    if kind == "csv":
        parser: Any = CsvParser(delimiter=",", names=("x", "z"), dialect=dialect)
        block = "".join(f"{text},0\n" for text in texts)
    else:
        parser = JsonParser(dialect=dialect)
        block = "".join(f'{{"x": {f"{chr(34)}{text}{chr(34)}" if text else "null"}}}\n' for text in texts)
    types = parser.infer(block.encode())
    found = parser.read(block.encode(), types)["x"]
    if iso is None:
        assert found.type == pa.string() and found.to_pylist() == texts
    else:
        assert found.type in (pa.date32(), pa.timestamp("us"))
        assert [value and str(value) for value in found.to_pylist()] == iso


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8-sig"])
@pytest.mark.parametrize("ending", ["csv", "json"])
def test_other_encodings_are_read(tmp_path, encoding, ending):
    text = "Größe€|z\n1|ä\n" if ending == "csv" else '{"Größe€": "1", "z": "ä"}\n'
    (tmp_path / f"a.{ending}").write_bytes(text.encode(encoding))
    source = find_source(str(tmp_path / f"a.{ending}"), Dialect(encoding=encoding))
    (batch,) = (read_csv if ending == "csv" else read_json_lines)(source, None)
    assert batch.to_pydict() == {"Größe€": ["1"], "z": ["ä"]}


@pytest.mark.spark
def test_spark_reads_the_encodings_in_which_a_line_ends_with_one_byte(read, refused, tmp_path):
    (tmp_path / "a.csv").write_bytes("Größe€;z\n1,5;ä\n".encode("cp1252"))
    file = str(tmp_path / "a.csv")
    found = read(find_source(file, Dialect(encoding="cp1252", decimal=",")))
    assert found[["Größe€", "z"]].to_dict("list") == {"Größe€": [1.5], "z": ["ä"]}
    (tmp_path / "a.csv").write_bytes("x;z\n1;\x81\n".encode("latin-1"))
    assert "row 1 (in the order of the files) is not cp1252 text" in refused(
        read, find_source(file, Dialect(encoding="cp1252"))
    )
    assert "cannot divide text in utf-16 into lines" in refused(
        read, find_source(file, Dialect(encoding="utf-16"))
    )


def test_a_file_in_another_encoding_is_refused(converted, refused, prepare, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,\x81\n")
    text = refused(prepare, tmp_path / "a.csv", "y", keys(encoding="cp1252"))
    assert "a.csv is not cp1252 text" in text and "data.encoding" in text
    assert "data.encoding" in refused(prepare, tmp_path / "a.csv", "y")


def test_a_separator_of_ones_own_is_taken_whatever_the_header_holds(prepare, tmp_path):
    (tmp_path / "a.csv").write_text("a,b^y\n" + "".join(f"{i * 0.5}^{i % 2}\n" for i in range(60)))
    assert prepare(tmp_path / "a.csv", "y", keys(separator="^")).kinds == {"a,b": "numeric"}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("separator", ";;", "give one ASCII character"),
        ("decimal", ";", "'.' or ','"),
        ("encoding", "latin-99", "no encoding of text has this name"),
        ("encoding", "rot13", "no encoding of text has this name"),
        ("date_format", "%d.%m.", "give day, month and year"),
        ("date_format", "%Y-%m-%d %f", "give day, month and year"),
        ("date_format", "%Y%m%d", "separate day, month and year"),
    ],
)
def test_what_no_table_can_be_read_by_is_refused(key, value, words):
    with pytest.raises(ConfigError) as caught:
        config_io.load(options=keys(**{key: value}))
    assert f"data.{key} = " in str(caught.value) and words in str(caught.value)


def test_a_note_names_the_key_that_reads_a_column(prepare, refused, tmp_path):
    (tmp_path / "a.csv").write_text(german(rows()))
    notes = prepare(tmp_path / "a.csv", "Stadt").schema.notes
    for column, key in (("Größe", 'set data.decimal = ","'), ("Tag", 'data.date_format, such as "%d.%m.%Y"')):
        assert any(f"{column!r} holds texts such as" in note and key in note for note in notes)
    whole = rows().assign(
        Größe=[str(i % 9) if i % 2 else f"{i % 9},5" for i in range(ROWS)]
    )  # as Excel writes
    whole.drop(columns=["Preis"]).to_csv(tmp_path / "a.csv", index=False, sep=";")
    (note,) = prepare(tmp_path / "a.csv", "Stadt").schema.notes
    assert 'set data.decimal = ","' in note
    whole.to_csv(tmp_path / "b.csv", index=False, sep=";")
    assert 'set data.decimal = ","' in refused(prepare, tmp_path / "b.csv", "Größe")
