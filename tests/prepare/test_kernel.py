"""What is found out about a table: by threads over files or by Spark's tasks, the same."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.prepare.kernel import Look, merged
from sparkgpu.prepare.local_rows import LocalRows
from sparkgpu.prepare.spark_rows import SparkRows
from sparkgpu.prepare.spark_source import open_numbered
from sparkgpu.table.source import find_source

NAN, INF = float("nan"), float("inf")
UTC = datetime.UTC
TIMESTAMPS = [
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    None,
    datetime.datetime(2024, 2, 29, 6, 30),
]

# name -> values of three rows, or an Arrow array of them
ALIKE = {
    "whole": pa.array([3, None, -7], pa.int32()),
    "long": pa.array([2**62, 1, None], pa.int64()),
    "small": pa.array([1, 2, 1], pa.uint8()),
    "constant": pa.array([5, 5, 5], pa.int16()),
    "broken": [0.5, None, 2.0],
    "nan": [NAN, 1.0, 2.0],
    "infinite": [-INF, 1.0, INF],
    "only nan": [NAN, NAN, None],
    "one and nan": [NAN, 4.0, 4.0],
    "float": pa.array([0.1, 0.2, None], pa.float32()),
    "zero": [0.0, -0.0, 0.0],
    "flag": [True, None, False],
    "always": [True, None, True],
    "no flag": pa.array([None, None, None], pa.bool_()),
    "word": ["a", None, ""],
    "no word": pa.array([None, None, None], pa.string()),
    "no number": pa.array([None, None, None], pa.float64()),
    "date": [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None],
    "day": [datetime.date(2024, 2, 29), datetime.date(2024, 2, 29), None],
    "timestamp": pa.array(TIMESTAMPS, pa.timestamp("us")),
    "zoned": pa.array(TIMESTAMPS, pa.timestamp("us", "America/New_York")),
    "millis": pa.array(TIMESTAMPS, pa.timestamp("ms")),
    "nanos": pa.array(TIMESTAMPS, pa.timestamp("ns")),
    "minutes": pa.array([datetime.datetime(2024, 1, 1, 5, m) for m in (1, 2, 3)], pa.timestamp("us", "UTC")),
    "once": pa.array([datetime.datetime(2024, 1, 1)] * 3, pa.timestamp("us")),
    "no timestamp": pa.array([None, None, None], pa.timestamp("us")),
    "too large": [1e300, -3.4028234663852886e38, 4.0],
    "all too large": [1e300, -1e39, 3.5e38],
    "large and nan": [1e300, NAN, INF],
    "beyond long": [1e20, 2.0, -1e19],
    "largest": pa.array([3.4028234663852886e38, 1.0, -INF], pa.float32()),
}
TEXTS = {
    "measured": ["1.5", " -2 ", "+3."],
    "marked": ["NA", "0.25", None],
    "exponent": ["1e-5", "7", "\t.5\n"],
    "infinity": ["1.5", "-Infinity", "iNf"],
    "too large": ["1e300", "-1.5e39", "0.5"],
    "beyond double": ["1e400", "1.5", "-1E999"],
    "not a number": ["NAN", "1.5", "nan"],
    "one number": ["1.0", "1.00", "?"],
    "whole": ["1.0", "2.0", "-"],
    "digits": ["1", "5", None],
    "negative": ["-1", "12", "3"],
    "zip": ["00123", "94110", "1.5"],
    "many digits": ["12345678901234567", "1", "2"],
    "seats": ["12D", "14F", "1.5"],
    "bare exponent": ["12E3", "4E2", "11"],
    "nearly": ["1.5", "2.5", "n/k"],
    "version": ["1.2", "1.2.3", "1.3"],
    "marks only": ["NA", "", None],
    "no text": pa.array([None, None, None], pa.string()),
    "large": pa.array(["1.5", "2.5", None], pa.large_string()),
    "day": ["2024-03-01", "2024-02-29", "NA"],
    "minute": ["2024-03-01 12:30", "2024-03-01 12:45", ""],
    "zoned": ["2024-03-01T12:30:00Z", "2024-03-01T12:30:00.5+05:30", "2024-03-01T12:30:00-0800"],
    "mixed timestamps": ["2024-03-01T12:30:00+01", "2024-03-02", " 1999-12-31 23:59:59.123456789 "],
    "one day": ["2024-03-01", "2024-03-01", None],
    "no such day": ["2024-02-30", "2024-02-28", None],
    "no such hour": ["2024-02-28 24:00:00", "2024-02-28", None],
    "no such zone": ["2024-02-28T10:00:00+18:30", "2024-02-28", None],
    "old": ["1582-10-10", "0001-01-01", None],
    "far": ["1582-10-10", "9999-12-31T23:59:59-11:00", None],
    "day and number": ["2024-03-01", "5.5", None],
    "compact": ["20240301", "20240302", None],
}
OTHERS = {
    "decimal": [decimal.Decimal("1.50"), None, decimal.Decimal("2.25")],
    "list": [[1], [2], None],
    "binary": [b"a", b"b", None],
}


def found_in(table: pa.Table, target: str, roles=None, *, sizes=(1, 2)):
    """The figures of each column, from parts of the table."""
    look = Look(schema=table.schema, target=target, roles=roles or {})
    begins = [sum(sizes[:part]) for part in range(len(sizes))]
    parts = [look(table.slice(begin, size).to_batches()) for begin, size in zip(begins, sizes, strict=True)]
    return merged(parts)


def statistics(table: pa.Table, target: str, roles=None):
    from sparkgpu.prepare.column_types import spark_type

    types = {field.name: spark_type(field.type) for field in table.schema}
    return found_in(table, target, roles).statistics(types)


def test_what_texts_hold_is_decided_on_all_of_them():
    found = statistics(pa.table(TEXTS), "measured")
    held = {"numbers": [], "timestamps": [], "codes": [], "text": []}
    for name, column in found.items():
        held[column.held].append(name)
    assert held == {
        "numbers": [
            "measured", "marked", "exponent", "infinity", "too large", "beyond double", "not a number",
            "one number", "whole", "large",
        ],
        "timestamps": ["day", "minute", "zoned", "mixed timestamps", "one day", "far"],
        "codes": ["digits", "negative", "zip", "many digits", "bare exponent", "compact"],
        "text": [
            "seats", "nearly", "version", "marks only", "no text", "no such day", "no such hour",
            "no such zone", "old", "day and number",
        ],
    }  # fmt: skip
    assert found["too large"].too_large == 2 and found["infinity"].infinite == 2
    assert (found["marked"].values, found["day"].values, found["nearly"].values) == (1, 2, 3)
    asked = statistics(pa.table(TEXTS), "measured", {"zip": "numeric", "nearly": "numeric"})
    assert (asked["zip"].held, asked["nearly"].held) == ("numbers", "text")


def test_texts_that_turn_out_otherwise_later_are_seen():
    rows = 600
    columns = {
        "late word": [f"{i}.5" for i in range(rows - 1)] + ["x"],
        "late timestamp": ["NA"] * 300 + [f"2024-01-{1 + i % 28:02}" for i in range(300)],
        "late number": [None] * 400 + [f"{i}.25" for i in range(200)],
        "late zero": [f"{i}.5" for i in range(rows - 1)] + ["007"],
        "late point": [str(i) for i in range(rows - 1)] + ["0.5"],
        "day then hour": ["2024-03-01"] * 300 + ["2024-03-01 07:00"] * 300,
    }
    table = pa.table(columns)
    types = dict.fromkeys(columns, "string")
    found = found_in(table, "late number", sizes=(600,)).statistics(types)
    assert found_in(table, "late number", sizes=(100,) * 6).statistics(types) == found
    assert [column.held for column in found.values()] == [
        "text", "timestamps", "numbers", "codes", "numbers", "timestamps",
    ]  # fmt: skip


def test_figures_are_of_the_numbers_that_fit_32_bits():
    found = statistics(pa.table(ALIKE), "whole")
    nan, large = found["large and nan"], found["all too large"]
    assert (nan.values, nan.nan, nan.infinite, nan.too_large, nan.least) == (2, 1, 1, 1, None)
    assert (large.too_large, large.least, large.varies) == (3, None, False)
    assert (found["whole"].least, found["whole"].greatest, found["whole"].whole) == (-7.0, 3.0, True)
    assert not found["constant"].varies and found["no number"].values == 0
    assert found["minutes"].parts == ("minute", "days since 1970") and found["once"].parts == ()
    assert statistics(pa.table(ALIKE), "flag")["flag"].counts == {"true": 1, "false": 1}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("target", "roles"), [("whole", {}), ("zip", {"zip": "numeric", "day": "timestamp"})]
)
def test_sparks_tasks_find_what_threads_find(spark, tmp_path, target, roles):
    columns = {
        **ALIKE,
        **{f"text {name}": texts for name, texts in TEXTS.items()},
        **OTHERS,
        "zip": TEXTS["zip"],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=2)
    source = find_source(str(tmp_path / "t.parquet"))
    here, held = LocalRows(source), SparkRows(open_numbered(spark, source, tmp_path))
    assert dict(here.types) == held.types
    by = {}
    for rows in (here, held):
        look = Look(schema=rows.schema, target=target, roles=roles)
        by[rows] = merged(rows.map(look, list(rows.types)))
    assert by[here].statistics(here.types) == by[held].statistics(held.types)
    assert by[here].fingerprint(here.types) == by[held].fingerprint(held.types)


def test_old_timestamps_of_96_bits_are_read(tmp_path):
    timestamps = [datetime.datetime(1999, 1, 1), datetime.datetime(9999, 12, 31, 23)]
    table = pa.table({"t": pa.array(timestamps, pa.timestamp("us")), "y": [1, 2]})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    rows = LocalRows(find_source(str(tmp_path / "t.parquet")))
    found = merged(rows.map(Look(schema=rows.schema, target="y", roles={}), ["t", "y"]))
    assert "year" in found.statistics(rows.types)["t"].parts and rows.spark_types["t"] == "timestamp"


def test_the_fingerprint_is_of_the_rows_in_any_order_and_tells_doubled_rows_apart():
    def fingerprint(values, names=("x",)):
        table = pa.table({name: pa.array(values) for name in names})
        return found_in(table, "x", sizes=(3, 1)).fingerprint({"x": "bigint"})

    assert fingerprint([1, 1, 2, 2]) == fingerprint([2, 1, 2, 1])
    assert fingerprint([1, 1, 2, 2]) != fingerprint([3, 3, 4, 4])
    assert fingerprint([1.0, None, float("nan"), -0.0]) == fingerprint([0.0, 1.0, None, float("nan")])


def test_files_that_disagree_on_a_type_and_doubled_names_are_refused(tmp_path, refused):
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"x": [1, 2], "y": [1, 2]}), tmp_path / "t" / "0.parquet")
    pq.write_table(pa.table({"x": pa.array([1, 2], pa.int32()), "y": [1, 2]}), tmp_path / "t" / "1.parquet")
    assert "its files disagree on the type of a column ('x')" in refused(
        LocalRows, find_source(str(tmp_path / "t"))
    )
    (tmp_path / "n").mkdir()
    for unit in ("us", "ns"):
        found = pa.table({"t": pa.array([TIMESTAMPS[0]], pa.timestamp(unit)), "y": [1]})
        pq.write_table(found, tmp_path / "n" / f"{unit}.parquet")
    assert "disagree on the type" in refused(LocalRows, find_source(str(tmp_path / "n")))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    words = refused(LocalRows, find_source(str(tmp_path / "twice.parquet")))
    assert "it has duplicate column names (a)" in words
