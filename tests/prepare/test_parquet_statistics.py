"""pyarrow's figures of a Parquet table equal Spark's, or there are none."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.prepare import parquet_statistics
from sparkgpu.prepare.parquet_statistics import from_scan, scan_parquet
from sparkgpu.prepare.reader import open_source
from sparkgpu.prepare.statistics import fingerprint, gather, own_types
from sparkgpu.table.source import find_source

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
UTC = datetime.UTC
MOMENTS = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), None, datetime.datetime(2024, 2, 29, 6, 30)]

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
    "moment": pa.array(MOMENTS, pa.timestamp("us")),
    "zoned": pa.array(MOMENTS, pa.timestamp("us", "America/New_York")),
    "millis": pa.array(MOMENTS, pa.timestamp("ms")),
    "nanos": pa.array(MOMENTS, pa.timestamp("ns")),
    "minutes": pa.array([datetime.datetime(2024, 1, 1, 5, m) for m in (1, 2, 3)], pa.timestamp("us", "UTC")),
    "once": pa.array([datetime.datetime(2024, 1, 1)] * 3, pa.timestamp("us")),
    "no moment": pa.array([None, None, None], pa.timestamp("us")),
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
    "mixed moments": ["2024-03-01T12:30:00+01", "2024-03-02", " 1999-12-31 23:59:59.123456789 "],
    "one day": ["2024-03-01", "2024-03-01", None],
    "no such day": ["2024-02-30", "2024-02-28", None],
    "no such hour": ["2024-02-28 24:00:00", "2024-02-28", None],
    "no such zone": ["2024-02-28T10:00:00+18:30", "2024-02-28", None],
    "old": ["1582-10-10", "0001-01-01", None],
    "far": ["1582-10-10", "9999-12-31T23:59:59-11:00", None],
    "day and number": ["2024-03-01", "5.5", None],
    "compact": ["20240301", "20240302", None],
}
LEFT_TO_SPARK = {
    "decimal": [decimal.Decimal("1.50"), None, decimal.Decimal("2.25")],
    "list": [[1], [2], None],
    "binary": [b"a", b"b", None],
    "huge": pa.array([2**63, 1, None], pa.uint64()),
    "duration": pa.array([1, 2, 3], pa.duration("us")),
}


@pytest.fixture
def both(spark, tmp_path):
    """The statistics of a table from pyarrow (None: left to Spark) and from Spark."""

    def gathered(source, target, roles=None):
        scan = scan_parquet(find_source(str(source)), target)
        table = open_source(spark, find_source(str(source)))
        found = None if scan is None else from_scan(scan, own_types(table), roles or {})
        return found, gather(table, target=target, text_file=False, roles=roles or {}).columns

    return gathered


@pytest.mark.parametrize(
    ("target", "roles"),
    [("whole", {}), ("not a number", {}), ("beyond double", {}), ("zip", dict.fromkeys(TEXTS, "numeric"))],
)
def test_pyarrow_finds_in_texts_what_spark_finds(both, tmp_path, target, roles):
    pq.write_table(pa.table(TEXTS), tmp_path / "t.parquet", row_group_size=2)
    found, expected = both(tmp_path / "t.parquet", target, roles)
    assert found == expected


def test_what_texts_hold_is_decided_on_all_of_them(both, tmp_path):
    pq.write_table(pa.table(TEXTS), tmp_path / "t.parquet", row_group_size=2)
    found, _ = both(tmp_path / "t.parquet", "measured")
    held = {"numbers": [], "moments": [], "codes": [], "words": []}
    for name, column in found.items():
        held[column.held].append(name)
    assert held == {
        "numbers": [
            "measured", "marked", "exponent", "infinity", "too large", "beyond double", "not a number",
            "one number", "whole", "large",
        ],
        "moments": ["day", "minute", "zoned", "mixed moments", "one day", "far"],
        "codes": ["digits", "negative", "zip", "many digits", "bare exponent", "compact"],
        "words": [
            "seats", "nearly", "version", "marks only", "no text", "no such day", "no such hour",
            "no such zone", "old", "day and number",
        ],
    }  # fmt: skip
    assert found["too large"].too_large == 2 and found["infinity"].infinite == 2
    assert (found["marked"].values, found["day"].values, found["nearly"].values) == (1, 2, 3)
    asked, _ = both(tmp_path / "t.parquet", "measured", {"zip": "numeric", "nearly": "numeric"})
    assert (asked["zip"].held, asked["nearly"].held) == ("numbers", "words")


def test_texts_that_turn_out_otherwise_later_are_read_alike(both, tmp_path):
    rows = 600
    columns = {
        "late word": [f"{i}.5" for i in range(rows - 1)] + ["x"],
        "late moment": ["NA"] * 300 + [f"2024-01-{1 + i % 28:02}" for i in range(300)],
        "late number": [None] * 400 + [f"{i}.25" for i in range(200)],
        "late zero": [f"{i}.5" for i in range(rows - 1)] + ["007"],
        "late point": [str(i) for i in range(rows - 1)] + ["0.5"],
        "day then hour": ["2024-03-01"] * 300 + ["2024-03-01 07:00"] * 300,
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=100)
    found, expected = both(tmp_path / "t.parquet", "late number")
    assert found == expected
    assert [column.held for column in found.values()] == [
        "words", "moments", "numbers", "codes", "numbers", "moments",
    ]  # fmt: skip


# Each has all columns; only which of them is the target differs.
QUICK = ("whole", "broken", "nan", "flag", "word", "moment")


@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ALIKE]
)
def test_pyarrow_finds_what_spark_finds(both, tmp_path, target):
    pq.write_table(pa.table(ALIKE), tmp_path / "t.parquet", row_group_size=2)
    found, expected = both(tmp_path / "t.parquet", target)
    assert found == expected


def test_old_timestamps_far_in_the_future_are_read_alike(both, tmp_path):
    moments = [datetime.datetime(1999, 1, 1), datetime.datetime(9999, 12, 31, 23)]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us")), "y": [1, 2]})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    found, expected = both(tmp_path / "t.parquet", "y")
    assert found == expected and "year" in found["t"].parts


def test_real_tables_in_one_file_or_several_are_read_alike(both, tmp_path, real_table):
    file, target = real_table.mixed()
    table = pq.read_table(file)
    (tmp_path / "parts").mkdir()
    for part in range(3):
        pq.write_table(table.slice(part * 100), tmp_path / "parts" / f"{part}.parquet")
    for source in (file, tmp_path / "parts"):
        found, expected = both(source, target)
        assert found is not None
        assert found == expected
        counts = pq.read_table(source)[target].value_counts().to_pylist()
        assert found[target].counts == {count["values"]: count["counts"] for count in counts}


@pytest.mark.parametrize("name", LEFT_TO_SPARK)
def test_what_may_be_read_differently_is_left_to_spark(both, tmp_path, name):
    pq.write_table(pa.table({name: LEFT_TO_SPARK[name], "y": [1, 2, 3]}), tmp_path / "t.parquet")
    assert both(tmp_path / "t.parquet", "y")[0] is None


def test_files_that_disagree_and_other_readings_are_left_to_spark(both, tmp_path):
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"x": [1, 2], "y": [1, 2]}), tmp_path / "t" / "0.parquet")
    assert both(tmp_path / "t", "y", {"x": "timestamp"})[0] is None
    pq.write_table(pa.table({"x": pa.array([1, 2], pa.int32()), "y": [1, 2]}), tmp_path / "t" / "1.parquet")
    assert scan_parquet(find_source(str(tmp_path / "t")), "y") is None
    (tmp_path / "p" / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2], "y": [1, 2]}), tmp_path / "p" / "day=1" / "0.parquet")
    assert both(tmp_path / "p", "y")[0] is None


def test_the_figures_do_not_depend_on_which_columns_are_read_together(tmp_path, monkeypatch):
    columns = {"a": [1, 2, None], "a.b": ["x", None, "3"], "flag": [True, None, None], "y": [0, 1, 1]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    together = scan_parquet(find_source(str(tmp_path / "t.parquet")), "y")
    monkeypatch.setattr(parquet_statistics, "_COLUMNS_AT_ONCE", 1)
    alone = scan_parquet(find_source(str(tmp_path / "t.parquet")), "y")
    assert alone.rows == together.rows == 3
    assert {name: figures.values for name, figures in alone.columns.items()} == {
        "a": 2, "a.b": 2, "flag": 1, "y": 3,
    }  # fmt: skip
    for name, figures in together.columns.items():
        assert alone.columns[name].extremes == figures.extremes
        assert alone.columns[name].counts == figures.counts
        assert alone.columns[name].texts.found() == figures.texts.found()


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([0.0, 1.0, -0.0, None, 2.0], {"0": 2, "1": 1, "2": 1}),
        (pa.array([10, 9, 10], pa.int8()), {"10": 2, "9": 1}),
        ([True, None, False, True], {"true": 2, "false": 1}),
        (["b", "a", None, "b", ""], {"b": 2, "a": 1, "": 1}),
        ([0.5, 1.0], None),
        ([2.0**60, 1.0], None),
        (pa.array([0, 1], pa.date32()), None),
    ],
)
def test_the_rows_of_each_class_are_counted_as_spark_spells_it(both, tmp_path, values, counts):
    pq.write_table(pa.table({"y": values}), tmp_path / "t.parquet", row_group_size=2)
    assert both(tmp_path / "t.parquet", "y")[0]["y"].counts == counts


def test_values_that_are_too_many_for_classes_are_not_all_counted(both, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_statistics, "BATCH_ROWS", 1000)
    pq.write_table(pa.table({"y": list(range(5000))}), tmp_path / "t.parquet")
    assert 1000 < len(both(tmp_path / "t.parquet", "y")[0]["y"].counts) < 3000


def test_the_fingerprint_by_itself_is_the_one_of_the_statistics(spark, tmp_path):
    pq.write_table(pa.table(ALIKE), tmp_path / "t.parquet")
    table = open_source(spark, find_source(str(tmp_path / "t.parquet")))
    assert fingerprint(table) == gather(table, target="word", text_file=False, roles={}).fingerprint
