"""The typed copy of a table of texts holds what Spark reads, or there is none."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sparkgpu.errors import DataError
from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.formats import text_blocks
from sparkgpu.prepare.formats import typed_copy as copies
from sparkgpu.prepare.formats.text_types import ARROW_TYPES, as_type, look_at, type_of
from sparkgpu.prepare.formats.typed_copy import is_small, typed_copy
from sparkgpu.prepare.reader import open_source
from sparkgpu.prepare.row_id import with_row_id
from sparkgpu.prepare.statistics import own_types
from sparkgpu.table.source import Source, find_source

DRAWN = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # the assertions name the texts, and each try is a job of Spark
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
NUMBERS = [
    "0", "-0", "+5", "007", "-12", "2147483647", "2147483648", "-9223372036854775808",
    "9223372036854775808", "1.5", "-0.0", ".5", "5.", "1e5", "1E-3", "1.5e1", "0e0", "1e400", "1e-400",
    "4.9e-324", "0.1", "NaN", "nan", "Inf", "-Inf", "inf", "+Inf", "Infinity", "-Infinity", "+Infinity",
    "infinity", "+NaN", "0x1F", "0x1p3", "12D", "12F", "1.5d", "1_000", "1,5", " 5", "5 ",
    " 5.5", "\t-5e3 ", " NaN", "\t5", "٣",
    "１２", "1٣", "123456789012345678901234567890", "1" * 39, "--1", "-", "+", ".", "e5", "1e",
    "1e99999999999", "$5", "5%", "1 2", "1/2", "²", "½",
]  # fmt: skip
MOMENTS = [
    "2024-02-29", "2023-02-29", "2024-2-9", "2024-02", "2024", "02024-01-01", "1899-12-31",
    "0001-01-01", "1582-10-10", "2024-02-29 12:30", "2024-02-29T12:30:59.123456",
    "2024-02-29T12:30:59.1234567", "2024-02-29 12:30:59Z", "2024-02-29T12:30:59+05:30",
    "2024-02-29T12:30:59+0530", "2024-02-29T12:30:59-18:30", "2024-02-29 12", "2024-02-29 24:00:00",
    "2024-02-29 12:30:59 Europe/Paris", "2024-02-29 12:30 UTC", "2024-02-29 x", "2024-02-29x",
    "2024-02-29T", " 2024-02-29", "2024-02-29 ", "12:30", "12:30:59", "T12:30", "T1", "t12:30",
    "T12:30:59Z", "29.02.2024", "02/29/2024", "20240229", "2024/02/29", "2024-13-01", "2024-Q1",
    "2024-W05", "10000-01-01", "9999-12-31", "+2024-01-01", "-2024-01-01", "12345-6789", "555-1234",
    "2024-02-29T12:30:59,5", "now", "epoch", "today", "1 day", "2024-02-29T12:30:60", "2024-02-29 1:2",
    "2024-02-29T12:30:59.5-01", "1900-01-01 00:00",
]  # fmt: skip
WORDS = [
    "true", "False", "TRUE", "tRuE", " true", "yes", "t", "1", "a", "NA", "N/A", "null", "NULL", "?",
    "-", "None", "é", "日本", "\u00a0", "\u00a05", "\ufeff", "x\x7f", "\x7f5", "a b", " ", "  ", "'",
    "\\", "\\N", "\\\"", '"', 'a"b', '""', "a,b", "#c", "//", "0-10", "50-74", "<=50K", "5th",
    "10 Main", "1st", "T", "Tom", "Info", "Nancy", "infra", "e", "d",
]  # fmt: skip
ANY = [*NUMBERS, *MOMENTS, *WORDS]
PLAIN = {
    "int": st.integers(-(2**31), 2**31 - 1).map(str),
    "bigint": st.integers(-(2**63), 2**63 - 1).map(str),
    "double": st.floats().map(repr) | st.floats(width=32).map(lambda value: f"{value:.6g}"),
    "fixed": st.decimals(-(10**12), 10**12, places=3, allow_nan=False).map(str),
    "boolean": st.sampled_from(["true", "false", "True", "FALSE"]),
    "date": st.dates().map(str),
    "timestamp": st.datetimes().map(str) | st.datetimes().map(lambda moment: f"{moment:%Y-%m-%dT%H:%M}"),
    "zoned": st.datetimes(timezones=st.just(datetime.UTC)).map(lambda moment: moment.isoformat()),
    "word": st.text("abc xyzTtIN-", min_size=1, max_size=6),
    "odd": st.text("0123456789+-.:eEdDfFxXTZ NaInf/é٣", min_size=1, max_size=12),
    "nasty": st.sampled_from(ANY),
    "shape": st.from_regex(
        r"[ +-]?([0-9]{1,6}|T)[-.:e/ ]?[0-9]{0,4}[-.:T ]?[0-9]{0,2}[:Z. ]?[0-9]{0,2}", fullmatch=True
    ),
}


@st.composite
def columns(draw: st.DrawFn) -> list[list[str]]:
    """Columns of a few texts, many of them of one kind, some with a text of another."""
    kinds = draw(st.lists(st.sampled_from(sorted(PLAIN)), min_size=40, max_size=60))
    found = []
    for kind in kinds:
        one = PLAIN[kind] | st.just("") if draw(st.booleans()) else PLAIN[kind]
        texts = draw(st.lists(one, min_size=3, max_size=3))
        if draw(st.integers(0, 3)) == 0:
            texts[draw(st.integers(0, 2))] = draw(PLAIN[draw(st.sampled_from(sorted(PLAIN)))])
        found.append(texts)
    return found


def values_of(table: Any, names: list[str]) -> pa.Table:
    """Columns of Spark's by row id; moments as whole numbers."""
    types = own_types(table)
    as_number = {"date": "unix_date(`{0}`)", "timestamp": "unix_micros(`{0}`)"}
    chosen = [as_number.get(types[name], "`{0}`").format(name) + f" AS `{name}`" for name in names]
    rows = pa.Table.from_batches(table.selectExpr(ROW_ID, *chosen)._collect_as_arrow())
    return rows.sort_by(ROW_ID)


def written(folder: Path, texts_of: list[list[str]]) -> Source:
    names = [f"c{place}" for place in range(len(texts_of))]
    file = folder / "table.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, quoting=csv.QUOTE_ALL)
        writer.writerows([names, *zip(*texts_of, strict=True)])
    return find_source(str(file))


@pytest.mark.spark
@given(texts_of=columns())
@DRAWN
def test_a_type_that_is_certain_is_the_one_that_spark_infers(
    spark: Any, tmp_path: Path, texts_of: Any
) -> None:
    held_against_spark(spark, tmp_path, texts_of)


@pytest.mark.spark
def test_a_single_text_of_any_kind_has_the_type_that_spark_infers(spark: Any, tmp_path: Path) -> None:
    held_against_spark(spark, tmp_path, [[text, "", text] for text in ANY])


@pytest.mark.spark
@pytest.mark.parametrize(
    "other",
    [
        "5",
        "2024-02-29 12:30",
        "a",
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in ("1.5", "2024-02-29", "true", "NaN", "5.", "NA")
        ),
    ],
)
def test_two_texts_of_any_kind_have_the_type_that_spark_infers(
    spark: Any, tmp_path: Path, other: str
) -> None:
    held_against_spark(spark, tmp_path, [[text, other, ""] for text in ANY])
    held_against_spark(spark, tmp_path, [[other, "", text] for text in ANY])


def held_against_spark(spark: Any, folder: Path, texts_of: list[list[str]]) -> int:
    """Returns the number of columns whose type is certain."""
    source = written(folder, texts_of)
    table = with_row_id(open_source(spark, source), source)
    certain = {}
    for (name, kind), texts in zip(own_types(table).items(), texts_of, strict=True):
        text_N = pa.array([text or None for text in texts], pa.string())
        found = type_of(look_at(text_N))
        by_row = [look_at(text_N[place : place + 1]) for place in range(len(texts))]
        assert type_of(frozenset().union(*by_row)) in (kind, None), texts  # in blocks as well
        if found is not None:
            assert found == kind, (texts, found, kind)
            value_N = as_type(text_N, found)
            assert value_N is not None and value_N.type == ARROW_TYPES[found]
            certain[name] = texts, plain(value_N)
    rows = values_of(table, list(certain))
    for name, (texts, values) in certain.items():
        assert values == plain(rows[name]), texts
    return len(certain)


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that can be compared: moments as whole numbers, and floats as text, which tells 0 from -0."""
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column = column.cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
    values = column.to_pylist()
    return [repr(value) for value in values] if pa.types.is_floating(kind) else values


CELLS = st.sampled_from(
    [
        "1",
        "-2",
        "2.5",
        "a",
        "",
        '"a,b"',
        '"say ""x"""',
        '""',
        '"1"',
        '""""',
        " 1",
        "b ",
        "é",
        "NA",
        "2024-01-01",
        "true",
        "x;y",
        "\\",
        "'q'",
        '"\\"',
    ]
)  # fmt: skip
ODD_CELLS = st.sampled_from(
    ['a"b', '"a"b', '"x\ny"', '"open', 'a""b', '"a" ', ' "a"', "\r", "\0", "x\ty", '""a""']
)
ODD_LINES = st.sampled_from(
    ["", " ", "\t", "\t\t", ",", ",,", "1", "1,2,3,4", "x,y,z", '"x",y,z', "\ufeff", "   \r"]
)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """The bytes of a file with three columns, and some oddities in a few of them."""
    delimiter = draw(st.sampled_from([",", ",", ";", "\t"]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    # Most columns are of one kind, so that their types are certain.
    kinds = [draw(st.sampled_from([CELLS, st.integers(-9, 9).map(str), st.just("w") | CELLS])) for _ in "xyz"]
    rows = [delimiter.join(draw(kind) for kind in kinds) for _ in range(draw(st.integers(1, 12)))]
    if draw(st.integers(0, 2)) == 0:
        odd = draw(
            ODD_LINES.map(lambda line: line.replace(",", delimiter))
            | st.tuples(ODD_CELLS, CELLS, CELLS).map(delimiter.join)
        )
        rows.insert(draw(st.integers(0, len(rows))), odd)
    header = draw(
        st.sampled_from(["x,y,z", "x,y,z", '"x","y","z"', "x,,z", ",y,z", "x,X,z", "a b,c.d,e(f)"])
    ).replace(",", delimiter)
    text = end.join([header, *rows]) + draw(st.sampled_from([end, "", end + end]))
    return draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"])) + text.encode()


@pytest.mark.spark
@given(content=files(), block=st.integers(8, 60))
@settings(DRAWN, max_examples=25)
def test_a_copy_holds_the_rows_that_spark_reads(
    spark: Any, tmp_path: Path, content: bytes, block: int
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    held_against_spark_as_file(spark, tmp_path / "a.csv", block)


def held_against_spark_as_file(spark: Any, file: Path, block: int) -> bool:
    """Returns whether there is a copy."""
    source, copy, refusal = find_source(str(file)), None, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK_BYTES", block)
        try:
            copy = typed_copy(source, file.parent)
        except DataError as error:
            refusal = str(error)
    is_copy = copy is not None and copy.was_text
    assert is_copy or not list(file.parent.glob("*.parquet"))
    try:
        table = with_row_id(open_source(spark, source), source)
        types = own_types(table)
        rows = values_of(table, list(types))
    except Exception as error:  # Spark refuses it
        assert not is_copy, error
        assert refusal in (None, str(error))
        return False
    assert refusal is None
    if is_copy:
        found = pq.read_table(copy.location)
        assert dict(zip(found.column_names, found.schema.types, strict=True)) == {
            name: ARROW_TYPES[kind] for name, kind in types.items()
        }
        assert found.column_names == list(types)
        for name in types:
            assert plain(found[name]) == plain(rows[name]), name
    return is_copy


JSON_VALUES = {
    "bigint": st.integers(-(10**17), 10**17),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "number": st.integers(-9, 9) | st.sampled_from([0.5, 1e-7, 1e22, -0.25]),
    "boolean": st.booleans(),
    "word": st.text(max_size=6)
    | st.sampled_from(["2024-01-01", "2024-01-01T12:30:00Z", "", "NA", "1.5", "true"]),
}
ODD_JSON = st.sampled_from(
    [
        "", " ", "{}", "[]", "null", "1", '{"a":1}{"a":2}', '{"a":', '{"a":1,"a":2}', '{"a":[1]}',
        '{"a":{"b":1}}', '{"a":NaN}', "{'a':1}", '{"a":9223372036854775808}', '{"a":1e400}',
        '{"a":007}', '{"a":"\\ud800"}', '{"d":5}', '{"a":"\\u0000"}', '{"a":"x\ty"}', '{"a":1.5}',
        '{"a":"x"}', '{"a":true}', '{"a":null}', '{"":1}', ' {"a":1} ', '{"a":-0}', '{"a":"\\/"}',
        '{"A":1}', '{"_corrupt_record":"x"}', "// a", '{"a":1},',
    ]
)  # fmt: skip


@st.composite
def json_files(draw: st.DrawFn) -> bytes:
    """The bytes of a file of objects, and an odd line in some of them."""
    kinds = {name: draw(st.sampled_from(sorted(JSON_VALUES))) for name in "cab"}
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        row = {
            name: draw(st.none() | JSON_VALUES[kind])
            for name, kind in kinds.items()
            if draw(st.integers(0, 5))
        }
        rows.append(json.dumps(row, ensure_ascii=draw(st.booleans())))
    if draw(st.integers(0, 2)) == 0:
        rows.insert(draw(st.integers(0, len(rows))), draw(ODD_JSON))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    return (end.join(rows) + draw(st.sampled_from([end, ""]))).encode("utf-8", "replace")


@pytest.mark.spark
@given(content=json_files(), block=st.integers(8, 60))
@settings(DRAWN, max_examples=25)
def test_a_copy_of_json_lines_holds_the_rows_that_spark_reads(
    spark: Any, tmp_path: Path, content: bytes, block: int
) -> None:
    (tmp_path / "a.json").write_bytes(content)
    held_against_spark_as_file(spark, tmp_path / "a.json", block)


ROWS = 400
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "number": np.where(np.arange(ROWS) % 9 == 0, np.nan, RANDOM.normal(size=ROWS)),
        "whole": RANDOM.integers(-5, 5, ROWS),
        "odd, {name};\t(a.b=c) `é`": RANDOM.integers(2**40, 2**41, ROWS),
        "flag": RANDOM.random(ROWS) < 0.5,
        "word": [(None, "a", "b, c", 'say "d"', "é")[i % 5] for i in range(ROWS)],
        "marked": [f"{i / 8}" if i % 7 else "NA" for i in range(ROWS)],
        "code": [f"{i % 30}{'DF'[i % 2]}x" for i in range(ROWS)],
        "y": [("yes", "no", "no")[i % 3] for i in range(ROWS)],
    }
)
TIMES = FRAME.assign(
    day=[datetime.date(2024, 1, 1) + datetime.timedelta(days=i % 70) for i in range(ROWS)],
    moment=pd.date_range("2024-01-01", periods=ROWS, freq="7h"),
)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("frame", "ending", "is_early", "target"),
    [
        (FRAME, "csv", True, "y"),
        (FRAME, "csv", True, "number"),
        (TIMES, "csv", False, "y"),
        (TIMES, "csv", False, "marked"),
        (TIMES, "jsonl", True, "y"),
        pytest.param(FRAME, "jsonl", True, "marked", marks=pytest.mark.slow),
        pytest.param(TIMES, "csv", False, "number", marks=pytest.mark.slow),
    ],
)
def test_a_table_of_texts_is_prepared_as_by_spark_alone(
    prepare: Any, tmp_path: Path, frame: pd.DataFrame, ending: str, is_early: bool, target: str
) -> None:
    file = tmp_path / f"a.{ending}"
    if ending == "csv":
        frame.to_csv(file, index=False)
    else:
        frame.to_json(file, orient="records", lines=True, date_format="iso")
    found, expected = prepare(file, target), prepare(file, target, by_spark=True)
    assert found.schema == expected.schema and found.schema.source == str(file)
    pd.testing.assert_frame_equal(found.table(), expected.table())
    assert pipeline_of(found) == pipeline_of(expected)
    phases = json.loads((found.paths.root / "phases.json").read_text())
    assert ("fitting the feature pipeline" not in phases) == (is_early and target != "marked")


def pipeline_of(prepared: Any) -> list[Any]:
    """What a saved pipeline says of its stages, without names and times of its making."""
    files = sorted(prepared.paths.pipeline.glob("stages/*/metadata/part-*"))
    return [json.loads(file.read_text())["paramMap"] for file in files]


@pytest.mark.spark
def test_a_table_in_csv_and_in_parquet_gives_the_same_rows_and_fingerprint(
    prepare: Any, tmp_path: Path
) -> None:
    frame = TIMES.drop(columns="marked")
    frame.to_csv(tmp_path / "a.csv", index=False)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.set_column(1, "whole", table["whole"].cast(pa.int32()))
    table = table.set_column(
        len(table.column_names) - 1, "moment", table["moment"].cast(pa.timestamp("us", "UTC"))
    )
    pq.write_table(table, tmp_path / "a.parquet")
    by_csv, by_parquet = prepare(tmp_path / "a.csv", "y"), prepare(tmp_path / "a.parquet", "y")
    assert by_csv.schema.model_copy(update={"source": ""}) == by_parquet.schema.model_copy(
        update={"source": ""}
    )
    pd.testing.assert_frame_equal(by_csv.table(), by_parquet.table())


def parts_of(folder: Path, lines: list[str], *, files: int = 1, ending: str = "csv") -> Source:
    """Lines with two columns in files of a folder, or in a single file."""
    folder.mkdir()
    step = -(-len(lines) // files)
    for number, begin in enumerate(range(0, len(lines), step)):
        text = "\n".join(["x,w", *lines[begin : begin + step]]) + "\n"
        content = gzip.compress(text.encode()) if ending.endswith("gz") else text.encode()
        (folder / f"part-{number}.{ending}").write_bytes(content)
    return find_source(str(folder))


@pytest.mark.parametrize(("files", "ending"), [(1, "csv"), (5, "csv"), (3, "csv.gz")])
def test_blocks_and_files_are_joined_in_order_and_a_late_text_changes_the_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, ending: str
) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 100)
    monkeypatch.setattr(text_blocks, "SAMPLE_BYTES", 40)
    monkeypatch.setattr(text_blocks, "SAMPLE_PLACES", 1)
    monkeypatch.setattr(copies, "_GROUP_ROWS", 1_500)
    for late, kind, value in (
        ("1.5", pa.float64(), 1.5),
        ("A7", pa.string(), "A7"),
        ("3000000000", pa.int64(), 3 * 10**9),
    ):
        lines = [f"{i},{'' if i < 1_000 else 'word'}" for i in range(5_000)]
        lines[4_000] = f"{late},word"
        folder = tmp_path / late
        copy = typed_copy(parts_of(folder, lines, files=files, ending=ending), tmp_path)
        assert copy.was_text and copy.name == str(folder)
        found = pq.ParquetFile(copy.location)
        assert found.schema_arrow.types == [kind, pa.string()]
        assert [found.metadata.row_group(i).num_rows for i in range(found.num_row_groups)] == [
            1_500,
            1_500,
            1_500,
            500,
        ]
        column = found.read()["x"].to_pylist()
        assert column[4_000] == value
        assert [float(x) for x in column[:4_000]] == list(range(4_000))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x,y\n1,2\n3\n", "Expected 2 columns, got 1"),
        (b'x,y\n1,"two\nlines"\n', "line breaks inside values"),
        (b'x,y\n1,2" pipe\n2,3" pipe\n', "quotes are not round whole values"),
        (b"x,y\n" + b"1,2\n" * 9_999 + b"1,caf\xe9\n", "invalid UTF8"),
        (b"x,y\n1,2\r3,4\n", "carriage returns that end no line"),
        (b"x,y\n1,\0\n", "zero bytes"),
        (b"x\ty\n1\t2\n \t\n", "lines of blanks"),
        (b"x,y\n1,2\nx,y\n", "repeats its header"),
        (b"x,y\n1,12D\n2,14F\n", "the type of 'y' is not certain"),
        (b"x,y\n", "it has no rows"),
        (b"x\n1\n", "too few or too many"),
        (b'{"a":1,"b":[1]}\n', "the type of 'b' is not certain"),
        (b'{"a":1,"b":2}\n{"a":1,"b":"x"}\n', "changed from number to string"),
        (b'{"a":1,"b":1234567890123456789}\n', "beyond 64 bits"),
        (b'{"a":1,\n"b":1}\n', "lines that are not one object each"),
        (b'{"a":1,"b":1}\n\n{"a":1,"b":1}\n', "lines that are not one object each"),
        (b'{"a":1,"b":"caf\xe9"}\n', "can't decode byte"),
    ],
)  # fmt: skip
def test_what_spark_may_read_in_another_way_is_left_to_it_and_the_log_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, reason: str
) -> None:
    file = tmp_path / ("a.json" if content.startswith(b"{") else "a.csv")
    file.write_bytes(content)
    source = find_source(str(file))
    assert typed_copy(source, tmp_path) is source
    line = capsys.readouterr().out
    assert line.startswith(f"{source.name}: Spark reads it, and not pyarrow: ") and reason in line
    assert list(tmp_path.iterdir()) == [file]


def test_only_a_small_local_csv_is_copied_before_spark(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.to_parquet(tmp_path / "a.parquet")
    assert is_small(find_source(str(tmp_path / "a.csv")))
    with (tmp_path / "a.csv").open("r+b") as file:
        file.truncate(1 << 27)
    assert not is_small(find_source(str(tmp_path / "a.csv")))
    assert not is_small(find_source(str(tmp_path / "a.parquet")))
    assert not is_small(Source(name="s", location="s3://b/a.csv", format="csv"))
