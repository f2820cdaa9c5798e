"""Any file under the name of a table is prepared whole, or refused in one sentence; no row is lost unsaid."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.table.source import find_source
from sparkgpu.core.words import clean
from sparkgpu.predict.readers import reader_of, refusing_unreadable
from sparkgpu.prepare.to_parquet import types_at_first_sight

NAMES = st.sampled_from(
    ["x", "y", "", " ", "a.b", "a b", '"q"', "it's", "`t`", "two\nlines", "tab\t", "größe", "名", "🙂",
     "select", "table", "row_id", "label", "split", "features", "prediction", "X", "n" * 300,
     "=1+1", "a,b", "a;b", "null"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)  # fmt: skip
ODD = ["nan", "NaN", "inf", "-Infinity", "1e999", "9" * 40, "-9223372036854775809", "0x1F", "1_000", "1,5",
       "", "null", "NA", "None", "?", "true", "TRUE", "2024-02-30", "2024-02-29", "0000-00-00", "12:30",
       "\x00", "\u2028", "é", "a\rb", '"', '""', "'", "[1]", '{"a": 1}', "\\", "\\N", "#", "٣"]  # fmt: skip
TEXTS = st.sampled_from(ODD) | st.sampled_from(["a", "b"]) | st.integers(-9, 9).map(str)
CLASSES = st.sampled_from(["yes", "no"])


def sentence_of(error: Exception) -> str:
    text = clean(str(error))
    assert text.endswith((".", "?")), text
    assert not re.search(r"Traceback|Exception|pyarrow|org\.apache|0x[0-9a-f]{6}", text), text
    return text


@pytest.fixture
def judged(prepare: Callable[..., Any], tmp_path: Path) -> Callable[..., None]:
    """Prepares the file with these bytes, and reads it as `predict` does.

    If they are not refused, `rows` rows were read; each is used or refused for a reason, and none twice.
    """
    number = itertools.count()

    def judge(name: str, files: dict[str, bytes], target: str, rows: int | None) -> str:
        folder = tmp_path / f"source-{next(number)}"
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        path = folder / name if len(files) == 1 else folder
        try:
            source = find_source(str(path))
            with refusing_unreadable(source):
                read = sum(len(batch) for batch in reader_of(source)(source, None))
            assert rows is None or read == rows
        except (DataError, ConfigError) as error:
            sentence_of(error)
        try:
            types_at_first_sight(find_source(str(path)))
        except (DataError, ConfigError) as error:
            sentence_of(error)
        try:
            made = prepare(path, target)
        except (DataError, ConfigError) as error:
            return sentence_of(error)
        schema, ids = made.schema, made.stored()["row_id"]
        assert rows is None or schema.rows + schema.rows_refused == rows
        assert len(ids) == ids.nunique() == schema.rows == sum(schema.splits.values())
        assert ids.between(0, schema.rows + schema.rows_refused - 1).all()
        return ""

    return judge


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]], str]:
    """Names, rows of texts, and the target, most often two classes."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=draw(st.booleans())))
    rows = draw(st.sampled_from([0, 1, 2, 12, 40]))
    kinds = [draw(st.sampled_from([TEXTS, CLASSES, st.integers(-99, 99).map(str)])) for _ in names]
    kinds[-1] = draw(st.sampled_from([CLASSES, CLASSES, CLASSES, TEXTS]))
    values = [draw(st.lists(kind, min_size=rows, max_size=rows)) for kind in kinds]
    return names, [list(row) for row in zip(*values, strict=True)], names[-1]


def as_csv(names: list[str], rows: list[list[str]], delimiter: str, ends: list[str]) -> bytes:
    def cell(text: str) -> str:
        is_plain = not any(letter in text for letter in f'{delimiter}"\r\n')
        return text if is_plain and text else '"' + text.replace('"', '""') + '"'

    lines = [delimiter.join(map(cell, row)) for row in (names, *rows)]
    return "".join(line + end for line, end in zip(lines, itertools.cycle(ends), strict=False)).encode()


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "as it is": lambda data, at: data,
    "cut": lambda data, at: data[:at],
    "NUL": lambda data, at: data[:at] + b"\0" + data[at:],
    "a quote": lambda data, at: data[:at] + b'"' + data[at:],
    "a line end": lambda data, at: data[:at] + b"\n" + data[at:],
    "a carriage return": lambda data, at: data[:at] + b"\r" + data[at:],
    "a delimiter": lambda data, at: data[:at] + b"," + data[at:],
    "no UTF-8": lambda data, at: data[:at] + b"\xe9\xff" + data[at:],
    "UTF-16": lambda data, at: data.decode().encode("utf-16"),
    "Latin-1": lambda data, at: data.decode().encode("latin-1", "replace"),
    "a byte order mark": lambda data, at: b"\xef\xbb\xbf" + data,
    "header twice": lambda data, at: data.partition(b"\n")[0] + b"\n" + data,
    "header alone": lambda data, at: data.partition(b"\n")[0],
    "no line": lambda data, at: b"",
    "binary": lambda data, at: bytes((7 * place + at) % 256 for place in range(300)),
}
PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


def lines_of(content: bytes) -> int:
    return sum(1 for line in content.split(b"\n") if line.strip(b"\r"))


@drawn(70)
@given(
    table=tables(),
    delimiter=st.sampled_from([",", ",", ";", "\t", "|"]),
    ends=st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"], ["\n\n"], ["\r"]]),
    damage=st.sampled_from(["as it is"] * 5 + list(DAMAGES)),
    at=st.integers(0, 400),
    packing=st.sampled_from(["", "", "", ".gz", ".bz2"]),
    parts=st.integers(1, 2),
)
def test_csv(judged: Any, table: Any, delimiter: str, ends: list[str], damage: str, at: int, packing: str,
             parts: int) -> None:  # fmt: skip
    names, rows, target = table
    content = DAMAGES[damage](as_csv(names, rows, delimiter, ends), at)
    files = {f"{part}.csv{packing}": PACKED[packing](content) for part in range(parts)}
    if packing and damage == "cut":  # of a compressed file its end, too
        files["0.csv" + packing] = files["0.csv" + packing][:-1]
    expected = max(lines_of(content) - 1, 0) * parts
    judged("0.csv" + packing, files, target, expected)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from(ODD),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=3,
)


@drawn(40)
@given(
    rows=st.lists(
        st.fixed_dictionaries({"t": CLASSES}, optional={"x": VALUES, "n": st.integers(-9, 9), "a.b": VALUES}),
        max_size=20,
    ),
    names=st.lists(NAMES, max_size=2),
    damage=st.sampled_from(["as it is"] * 5 + list(DAMAGES)),
    at=st.integers(0, 400),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_json_lines(judged: Any, rows: list[Any], names: list[str], damage: str, at: int, end: str) -> None:
    lines = [json.dumps({**dict.fromkeys(names, 1), **row}, ensure_ascii=at % 2 == 0) for row in rows]
    content = DAMAGES[damage](end.join(lines).encode(), at)
    judged("a.jsonl", {"a.jsonl": content}, "t", lines_of(content))


TYPES = st.sampled_from(
    [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(),
     pa.binary(), pa.date32(), pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin"), pa.time64("us"),
     pa.duration("s"), pa.decimal128(38, 9),
     pa.null(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64()),
     pa.dictionary(pa.int32(), pa.string())]
)  # fmt: skip


def column(kind: pa.DataType, rows: int) -> pa.Array:
    """Values of any type, or nulls where that type has no plain ones."""
    plain: list[Any] = [place % 5 or None for place in range(rows)]
    try:
        return (
            pa.array(plain, pa.int64()).cast(pa.string() if pa.types.is_dictionary(kind) else kind).cast(kind)
        )
    except pa.ArrowException:
        return pa.nulls(rows, kind)


@drawn(50)
@given(
    schemas=st.lists(st.lists(st.tuples(NAMES, TYPES), max_size=3), min_size=1, max_size=2),
    rows=st.sampled_from([0, 1, 30]),
    ending=st.sampled_from(["parquet", "parquet", "orc"]),
    damage=st.sampled_from(["as it is"] * 6 + ["cut", "NUL", "no UTF-8", "no line", "binary"]),
    at=st.integers(0, 3000),
)
def test_parquet_and_orc(judged: Any, schemas: Any, rows: int, ending: str, damage: str, at: int) -> None:
    files = {}
    for part, columns in enumerate(schemas):
        arrays = [column(kind, rows) for _, kind in columns]
        target = pa.array([["yes", "no", None][place % 3] for place in range(rows)], pa.string())
        table = pa.Table.from_arrays([*arrays, target], names=[*(name for name, _ in columns), "t"])
        file = io.BytesIO()
        try:
            (pyarrow.orc if ending == "orc" else pq).write_table(table, file)
        except (pa.ArrowException, OSError):  # types that the format does not have
            return
        files[f"{part}.{ending}"] = DAMAGES[damage](file.getvalue(), at) if part == 0 else file.getvalue()
    judged(f"0.{ending}", files, "t", rows * len(files) if damage == "as it is" else None)
