"""What is found out about a table is the same for any parts of it, read by threads or by Spark's tasks."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NAN, INF = float("nan"), float("inf")
MINUTES = [datetime.datetime(2024, 1, 1, 5, m) for m in (1, 2, 3)]
ROWS = 600

# name -> values of three rows, or an Arrow array of them
ODD = {
    "nan": [NAN, 1.0, 2.0],
    "infinite": [-INF, 1.0, INF],
    "only nan": [NAN, NAN, None],
    "one and nan": [NAN, 4.0, 4.0],
    "zero": [0.0, -0.0, 0.0],
    "too large": [1e300, -3.4028234663852886e38, 4.0],
    "all too large": [1e300, -1e39, 3.5e38],
    "large and nan": [1e300, NAN, INF],
    "beyond long": [1e20, 2.0, -1e19],
    "largest": pa.array([3.4028234663852886e38, 1.0, -INF], pa.float32()),
    "no number": pa.array([None, None, None], pa.float64()),
    "small": pa.array([1, 2, 1], pa.uint8()),
    "constant": pa.array([5, 5, 5], pa.int16()),
    "always": [True, None, True],
    "no flag": pa.array([None, None, None], pa.bool_()),
    "millis": pa.array(MINUTES, pa.timestamp("ms")),
    "minutes": pa.array(MINUTES, pa.timestamp("us", "America/New_York")),
    "once": pa.array(MINUTES[:1] * 3, pa.timestamp("us")),
    "no timestamp": pa.array([None, None, None], pa.timestamp("us")),
    "decimal": [decimal.Decimal("1.50"), None, decimal.Decimal("2.25")],
    "list": [[1], [2], None],
    "binary": [b"a", b"b", None],
}
TEXTS = {
    "numbers": {
        "measured": ["1.5", " -2 ", "+3."],
        "marked": ["NA", "0.25", None],
        "exponent": ["1e-5", "7", "\t.5\n"],
        "infinity": ["1.5", "-Infinity", "iNf"],
        "beyond 32 bits": ["1e300", "-1.5e39", "0.5"],
        "beyond double": ["1e400", "1.5", "-1E999"],
        "not a number": ["NAN", "1.5", "nan"],
        "one number": ["1.0", "1.00", "?"],
        "whole": ["1.0", "2.0", "-"],
        "large": pa.array(["1.5", "2.5", None], pa.large_string()),
        "asked": ["7", "n/k", None],
    },
    "timestamps": {
        "day": ["2024-03-01", "2024-02-29", "NA"],
        "minute": ["2024-03-01 12:30", "2024-03-01 12:45", ""],
        "zoned": ["2024-03-01T12:30:00Z", "2024-03-01T12:30:00.5+05:30", "2024-03-01T12:30:00-0800"],
        "mixed": ["2024-03-01T12:30:00+01", "2024-03-02", " 1999-12-31 23:59:59.123456789 "],
        "far": ["1582-10-10", "9999-12-31T23:59:59-11:00", None],
    },
    "words": {
        "digits": ["1", "5", None],
        "negative": ["-1", "12", "3"],
        "zip": ["00123", "94110", "1.5"],
        "many digits": ["12345678901234567", "1", "2"],
        "seats": ["12D", "14F", "1.5"],
        "bare exponent": ["12E3", "4E2", "11"],
        "nearly": ["1.5", "2.5", "n/k"],
        "version": ["1.2", "1.2.3", "1.3"],
        "no such day": ["2024-02-30", "2024-02-28", None],
        "no such hour": ["2024-02-28 24:00:00", "2024-02-28", None],
        "no such zone": ["2024-02-28T10:00:00+18:30", "2024-02-28", None],
        "old": ["1582-10-10", "0001-01-01", None],
        "day and number": ["2024-03-01", "5.5", None],
        "compact": ["20240301", "20240302", None],
        "marks only": ["NA", "", None],
    },
    "nothing": {
        "no text": pa.array([None, None, None], pa.string()),
        "one day": ["2024-03-01", "2024-03-01", None],
    },
}
LATE = {
    "late word": ("words", [f"{i}.5" for i in range(60)] * 9 + ["x"] * 60),
    "late zero": ("words", [f"{i}.5" for i in range(60)] * 9 + ["007"] * 60),
    "late timestamp": ("timestamps", ["NA"] * 300 + [f"2024-01-{1 + i % 28:02}" for i in range(300)]),
    "late number": ("numbers", [None] * 400 + [f"{i}.25" for i in range(200)]),
    "late point": ("numbers", [str(i) for i in range(ROWS - 1)] + ["0.5"]),
    "day then hour": ("timestamps", ["2024-03-01"] * 300 + ["2024-03-01 07:00"] * 300),
}
OPTIONS = {"data.roles": {"asked": "numeric", "target": "numeric"}, "data.task": "regression"}


@pytest.fixture
def file(tmp_path):
    """All these columns, with a target of codes, in row groups of 100 rows."""
    columns = ODD | {name: values for texts in TEXTS.values() for name, values in texts.items()}
    table = pa.table({name: pa.concat_arrays([pa.array(three)] * 200) for name, three in columns.items()})
    for name, (_, values) in LATE.items():
        table = table.append_column(name, pa.array(values))
    table = table.append_column("target", pa.array([f"{i % 50:03}" for i in range(ROWS)]))
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    return tmp_path / "t.parquet"


def test_what_texts_hold_is_decided_on_all_of_them(prepare, file):
    schema = prepare(file, "target", OPTIONS).schema
    found = {feature.source: feature.reading for feature in schema.features}
    readings = {"number": "numbers", "timestamp": "timestamps", "category": "words", None: "nothing"}
    for held, texts in TEXTS.items():
        assert {name: readings[found.get(name)] for name in texts} == dict.fromkeys(texts, held)
    assert {name: readings[found[name]] for name in LATE} == {name: held for name, (held, _) in LATE.items()}
    assert [feature.title for feature in schema.features if feature.source == "minutes"] == [
        "minutes (minute)", "minutes (days since 1970)",
    ]  # fmt: skip
    assert "400 infinite values in 'infinity' count as missing" in schema.notes
    assert "400 values beyond 3.4e38 in 'beyond 32 bits' count as missing" in schema.notes


def test_texts_of_numbers_and_timestamps_get_the_values_of_numbers_and_timestamps(prepare):
    days = pd.Series(pd.date_range("2024-01-01", periods=ROWS, freq="31h"))
    numbers = np.round(np.random.default_rng(0).normal(size=ROWS), 3)
    columns = {
        "price": [f"{value:.3f}" if i % 10 else "NA" for i, value in enumerate(numbers)],
        "asked": [str(i % 7) for i in range(ROWS)],
        "kept": [f"{i % 4}.5" for i in range(ROWS)],
        "day": [f"{day:%Y-%m-%dT%H:%M:%SZ}" if i % 6 else "" for i, day in enumerate(days)],
        "sum": [f"{i % 9},{i % 7}5" if i % 11 else "NA" for i in range(ROWS)],
        "date": [f"{day:%d.%m.%Y}" for day in days],
        "word": [f"{i % 9},{i % 7} x" for i in range(ROWS)],
        "y": [f"{value:.3f}" if i else "NA" for i, value in enumerate(numbers)],
    }
    found = prepare(columns, "y", {"data.roles": {"asked": "numeric", "kept": "categorical"}})
    texts, timestamps, wrong_number, wrong_date = found.schema.notes
    assert texts == "'price', 'y' are texts that hold numbers and are read as such"
    assert timestamps == "'day' is text that holds timestamps and is read as such"
    assert "'sum' holds texts such as" in wrong_number and "write them with a decimal point" in wrong_number
    assert "'date' holds texts such as" in wrong_date and "write them as 2024-12-31" in wrong_date
    assert {"kept", "sum", "word"} == {name for name, kind in found.kinds.items() if kind == "categorical"}
    table = found.table()
    assert (found.schema.task, found.schema.rows_refused, table["row_id"].min()) == ("regression", 1, 1)
    expected = pd.Series(numbers).where(np.arange(ROWS) % 10 > 0)[1:].astype(np.float32)
    assert np.array_equal(table["price"], expected, equal_nan=True)
    assert np.array_equal(table["day_hour"], days.dt.hour.where(np.arange(ROWS) % 6 > 0)[1:], equal_nan=True)
    assert table["asked"].tolist() == [i % 7 for i in range(1, ROWS)]


@pytest.mark.parametrize("by", ["arrow", pytest.param("held", marks=pytest.mark.spark)])
def test_parts_of_a_table_give_what_the_whole_gives(prepare, same, file, by, monkeypatch):
    whole = prepare(file, "target", OPTIONS)
    monkeypatch.setattr("sparkgpu.prepare.local_rows._PART_ROWS", 1)
    same(prepare(file, "target", OPTIONS, by=by), whole)


@pytest.mark.spark
def test_old_timestamps_of_96_bits_are_read(prepare, same, tmp_path):
    ends = [datetime.datetime(1999, 1, 1), datetime.datetime(9999, 12, 31, 23)] * 60
    table = pa.table({"t": pa.array(ends, pa.timestamp("us")), "y": ["a", "a", "b", "b"] * 30})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    found = prepare(tmp_path / "t.parquet", "y")
    assert found.table()["t_year"].tolist() == [1999, 9999] * 60
    same(prepare(tmp_path / "t.parquet", "y", by="spark"), found)


def test_the_fingerprint_is_of_the_rows_in_any_order_and_tells_doubled_rows_apart(prepare):
    def fingerprint(values, label=("a", "a", "b", "b")):
        return prepare({"x": values * 20, "y": label * 20}, "y").schema.fingerprint

    assert fingerprint([1.5, 1.5, 2, 2]) == fingerprint([2, 1.5, 2, 1.5], ("b", "a", "b", "a"))
    assert fingerprint([1.5, 1.5, 2, 2]) != fingerprint([3.5, 3.5, 4, 4])
    assert fingerprint([1.5, None, NAN, -0.0]) == fingerprint([None, 1.5, 0.0, NAN])


@pytest.mark.parametrize("by", ["arrow", pytest.param("held", marks=pytest.mark.spark)])
def test_the_same_rows_have_one_fingerprint_in_csv_and_in_any_types_of_parquet(prepare, tmp_path, by):
    frame = pd.DataFrame(
        {
            "whole": np.array([3, 1, 2] * 40, np.int32),
            "gaps": [1.0, NAN, 3.0] * 40,  # pandas has no gaps among whole numbers
            "share": np.arange(120) / 7,
            "word": pd.Categorical(["a", None, "b c"] * 40),
            "flag": [True, False, True] * 40,
            "maybe": pd.array([True, None, False] * 40, "boolean"),
            "day": pd.date_range("2024-01-01", periods=120, freq="D"),
            "at": pd.date_range("2024-01-01 10:30", periods=120, freq="37min"),
            "large": 2**60 + np.arange(120),
            "nothing": [None] * 120,
            "y": ["no", "yes", "no"] * 40,
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.astype({"whole": "float64", "word": "object", "gaps": "Int8"}).to_parquet(tmp_path / "u.parquet")
    files = ("t.csv", "t.parquet", "u.parquet")
    found = [prepare(tmp_path / name, "y").schema.fingerprint for name in files]
    known = prepare(tmp_path / "t.parquet", "y", by=by).schema.fingerprint
    assert set(found) == {known}
    frame.loc[5, "large"] += 1
    frame.to_parquet(tmp_path / "v.parquet")
    assert prepare(tmp_path / "v.parquet", "y").schema.fingerprint != known
