"""Frames of any types, names and order are encoded, or refused in one sentence; never read wrongly."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import OTHER_LEVEL, Feature, Reading, TableSchema
from sparkgpu.predict.frames import as_reader, batches
from sparkgpu.prepare.encoding import Encoder, labels


def feature(
    source: str, reading: Reading, kind: str, levels: tuple[str, ...] = (), part: str | None = None
) -> Feature:
    name = f"{source}_{part}" if part else source
    return Feature(
        name=name, source=source, pipeline=name, part=part, levels=levels, reading=reading, type=kind,
        kind="categorical" if levels else "numeric",
    )  # fmt: skip


SCHEMA = TableSchema(
    source="made",
    target="y",
    target_type="bigint",
    task="multiclass",
    classes=("1", "2", "10"),
    features=(
        feature("size", "number", "double"),
        feature("word", "category", "string", ("a", "b", "")),
        feature("zone", "category", "bigint", ("7", "-3", OTHER_LEVEL)),
        feature("when", "timestamp", "timestamp", part="year"),
        feature("owns", "boolean", "boolean"),
        feature("rate", "category", "double", ("0.1", "1.0E10", "2.0")),
    ),
    rows=0,
    splits={},
    fingerprint="",
)
COLUMNS = ("size", "word", "zone", "when", "owns", "rate")


def encoded(frame: Any) -> tuple[Rows, Encoder]:
    encoder = Encoder(SCHEMA)
    encoder.check(as_reader(frame).schema.names, "the data")
    parts = [encoder.rows(batch) for batch in batches(frame)]
    assert len(parts) == 1
    return parts[0], encoder


def test_each_column_is_read_by_what_it_held_at_training() -> None:
    rows, encoder = encoded(
        pd.DataFrame(
            {
                "rate": [0.1, 1e10, 5.0, None],
                "size": ["1.5", " +2 ", "n/k", "NA"],
                "extra": [1, 2, 3, 4],
                "zone": [7.0, -3.0, 8.5, None],
                "word": ["b", "", "new", None],
                "when": ["2024-05-06", "2023-02-30", None, "2022-01-01T00:00:00+05:00"],
                "owns": ["Yes", "0", "perhaps", None],
            }
        )
    )
    np.testing.assert_array_equal(rows.numeric_NF[:, 0], np.array([1.5, 2, np.nan, np.nan], np.float32))
    np.testing.assert_array_equal(rows.numeric_NF[:, 1], np.array([2024, np.nan, np.nan, 2021], np.float32))
    np.testing.assert_array_equal(rows.numeric_NF[:, 2], np.array([1, 0, np.nan, np.nan], np.float32))
    assert rows.codes_NK.tolist() == [[1, 0, 0], [2, 1, 1], [-1, 2, -1], [-1, -1, -1]]
    assert encoder.findings.unknown == Counter(word=1, rate=1)
    assert encoder.findings.unreadable == Counter(size=1, when=1, owns=1)
    assert encoder.findings.sentences() == [
        "values that training never saw count as missing: 'word' (1 of 3), 'rate' (1 of 3)",
        "values that cannot be read count as missing: 'size' (1 of 4), 'when' (1 of 3), 'owns' (1 of 3)",
    ]


def test_infinite_and_too_large_numbers_are_counted_as_numbers_and_as_texts() -> None:
    nothing = {name: [None] * 4 for name in COLUMNS[1:]}
    for values in ([1e300, float("inf"), float("nan"), 1e38], ["1e300", "-1e400", "NaN", "1e38"]):
        rows, encoder = encoded(pa.table({"size": values, **nothing}))
        assert np.isnan(rows.numeric_NF[:3, 0]).all() and rows.numeric_NF[3, 0] == np.float32(1e38)
        (sentence,) = encoder.findings.sentences()
        assert sentence.startswith(
            "values that are infinite or beyond 3.4e38 count as missing: 'size' (2 of "
        )


def test_a_column_without_a_value_may_have_any_type() -> None:
    rows, _ = encoded(pa.table({name: pa.nulls(2, pa.timestamp("ns")) for name in COLUMNS}))
    assert np.isnan(rows.numeric_NF).all() and (rows.codes_NK == -1).all()


def test_labels_are_read_in_the_type_of_the_target() -> None:
    for values in ([1, 10, 3, None], ["1", "10", "3", None], [1.0, 10.0, 2.5, None]):
        assert labels(pa.array(values), SCHEMA).tolist() == [0, 2, -1, -1]


VALUES = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=64),
    "bool": st.booleans(),
    "text": st.text(max_size=6) | st.sampled_from(["a", "b", "7", "1e400", "NaN", "2024-01-01", "١", "0x1F"]),
    "day": st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1)),
    "decimal": st.decimals(-1000, 1000, places=3),
    "nothing": st.none(),
}


@st.composite
def frames(draw: st.DrawFn) -> pa.Table:
    """Tables with the needed columns in any order, each of any type, with gaps, and others beside them."""
    rows = draw(st.integers(0, 5))
    names = draw(st.permutations([*COLUMNS, "extra", "sp ace"]))
    columns: dict[str, pa.Array] = {}
    for name in names:
        kind = draw(st.sampled_from(sorted(VALUES)))
        values = draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows))
        column = pa.array(values)
        if pa.types.is_string(column.type) and draw(st.booleans()):
            column = column.dictionary_encode()
        columns[name] = column
    return pa.table(columns)


@settings(max_examples=50, deadline=None)
@given(frames())
def test_any_frame_is_encoded_with_codes_and_finite_numbers_or_refused(table: pa.Table) -> None:
    try:
        encoder = Encoder(SCHEMA)
        rows = encoder.rows(table)
    except DataError as error:
        assert "Convert it." in str(error) and "\n" not in str(error)
        return
    assert len(rows.numeric_NF) == len(rows.codes_NK) == table.num_rows
    assert not np.isinf(rows.numeric_NF).any()
    for place, one in enumerate(SCHEMA.categorical):
        assert ((rows.codes_NK[:, place] >= -1) & (rows.codes_NK[:, place] < len(one.levels))).all()
    for column, found in (("size", rows.numeric_NF[:, 0]), ("owns", rows.numeric_NF[:, 2])):
        is_null_N = np.array([value is None for value in table[column].to_pylist()], dtype=bool)
        assert np.isnan(found[is_null_N]).all()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"size": [[1.0]]}, "column 'size' is of type list<item: double>; the model needs numbers there."),
        (
            {"when": [{"a": 1}]},
            "column 'when' is of type struct<a: int64>; the model needs timestamps there.",
        ),
        (
            {"size": [dt.date(2024, 1, 1)]},
            "column 'size' is of type date32[day]; the model needs numbers there.",
        ),
    ],
)
def test_a_type_that_holds_no_such_values_is_named(columns: dict[str, Any], words: str) -> None:
    table = pa.table({**{name: pa.nulls(1) for name in COLUMNS}, **columns})
    with pytest.raises(DataError) as caught:
        Encoder(SCHEMA).rows(table)
    assert str(caught.value).startswith(words)


def test_absent_and_doubled_columns_are_named_with_the_nearest() -> None:
    with pytest.raises(DataError, match=r"needs column 'word', which .+ not have\. Did you mean 'Word'"):
        Encoder(SCHEMA).check([*COLUMNS[:1], "Word", *COLUMNS[2:]], "the data")
    with pytest.raises(DataError, match="duplicate column names: size"):
        Encoder(SCHEMA).check([*COLUMNS, "size"], "the data")


def test_what_is_no_table_is_refused() -> None:
    for data in ([1, 2], {"size": [1]}, "a.parquet", np.zeros((2, 2))):
        with pytest.raises(DataError, match="give a pandas, polars or pyarrow table"):
            as_reader(data)


def test_a_pandas_column_of_mixed_objects_is_read_as_text() -> None:
    frame = pd.DataFrame({"size": [1, "2", None, 2.5], "word": ["a", 1, b"b", None]})
    for name in COLUMNS[2:]:
        frame[name] = None
    rows, _ = encoded(frame)
    np.testing.assert_array_equal(rows.numeric_NF[:, 0], np.array([1, 2, np.nan, 2.5], np.float32))
    assert rows.codes_NK[:, 0].tolist() == [0, -1, -1, -1]
