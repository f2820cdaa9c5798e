"""Numbers and timestamps stored as text, and numbers that do not fit 32 bits, in a prepared table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

ROWS = 120
RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(size=ROWS)
LABELS = ["yes" if i % 3 else "no" for i in range(ROWS)]
DAYS = pd.Series(pd.date_range("2024-01-01", periods=ROWS, freq="31h"))


def test_text_that_holds_numbers_or_timestamps_is_read_as_such_and_codes_stay_text(prepare):
    prices = [f"{value:.3f}" if i % 10 else "NA" for i, value in enumerate(NUMBERS)]
    found = prepare(
        {
            "price": prices,
            "stars": [str(1 + i % 5) for i in range(ROWS)],
            "asked": [str(i % 7) for i in range(ROWS)],
            "kept": [f"{i % 4}.5" for i in range(ROWS)],
            "day": [f"{day:%Y-%m-%d}" if i % 6 else "" for i, day in enumerate(DAYS)],
            "timestamp": [f"{day:%Y-%m-%dT%H:%M:%SZ}" for day in DAYS],
            "y": [f"{value:.2f}" if i else "NA" for i, value in enumerate(NUMBERS)],
        },
        "y",
        {"data.roles": {"asked": "numeric", "kept": "categorical"}},
    )
    day = {f"day ({part})" for part in ("month", "day", "weekday", "days since 1970")}
    numeric = {
        "price",
        "asked",
        "timestamp (hour)",
        *day,
        *(name.replace("day (", "timestamp (") for name in day),
    }
    assert found.kinds == dict.fromkeys(numeric, "numeric") | dict.fromkeys(("stars", "kept"), "categorical")
    assert found.schema.notes == (
        "'price', 'y' are texts that hold numbers and are read as such",
        "'day', 'timestamp' are texts that hold timestamps and are read as such",
    )
    table = found.table()
    assert (found.schema.task, found.schema.rows_refused, table["row_id"].min()) == ("regression", 1, 1)
    assert table["price"].isna().tolist() == [i % 10 == 0 for i in range(1, ROWS)]
    expected = [float(text) for text in prices if text != "NA"]
    assert table["price"].dropna().tolist() == pytest.approx(expected, rel=1e-6)
    assert table["timestamp_hour"].tolist() == DAYS.dt.hour.tolist()[1:]
    assert table["day_day"].isna().tolist() == [i % 6 == 0 for i in range(1, ROWS)]
    assert table["asked"].tolist() == [i % 7 for i in range(1, ROWS)]


def test_figures_and_dates_in_a_form_that_is_not_read_are_said(prepare):
    found = prepare(
        {
            "price": [f"{i % 9},{i % 7}5" if i % 11 else "NA" for i in range(ROWS)],
            "day": [f"{day:%d.%m.%Y}" for day in DAYS],
            "us": [f"{day:%m/%d/%Y}" for day in DAYS],
            "word": [f"{i % 9},{i % 7} x" for i in range(ROWS)],
            "y": LABELS,
        },
        "y",
        {"data.roles": {"us": "timestamp"}},
    )
    price, day = found.schema.notes
    assert "'price' holds texts such as" in price and "not read as numbers; write them with a dec" in price
    assert "'day' holds texts such as" in day and "not read as timestamps; write them as 2024-12-31" in day
    assert found.dropped["us"].endswith("no two different timestamps of ISO 8601 are read in it")


def test_numbers_that_32_bits_do_not_hold_count_as_missing_and_are_said(prepare):
    large = np.where(np.arange(ROWS) % 40 == 0, 1e300, NUMBERS)
    found = prepare(
        {
            "x": large,
            "both": np.where(np.arange(ROWS) == 1, -np.inf, -large),
            "text": [f"{value:.3e}" for value in large],
            "single": pa.array(np.where(np.arange(ROWS) == 0, 3e38, NUMBERS), pa.float32()),
            "y": LABELS,
        },
        "y",
    )
    assert found.schema.notes == (
        "3 values beyond 3.4e38 in 'x' count as missing",
        "1 infinite values in 'both' count as missing",
        "3 values beyond 3.4e38 in 'both' count as missing",
        "3 values beyond 3.4e38 in 'text' count as missing",
        "'text' is text that holds numbers and is read as such",
    )
    table = found.table()
    assert table["x"].isna().tolist() == [i % 40 == 0 for i in range(ROWS)] == table["text"].isna().tolist()
    assert table["both"].isna().sum() == 4 and table["single"].isna().sum() == 0


@pytest.mark.spark
def test_the_saved_pipeline_reads_the_texts_and_what_it_cannot_read_is_missing(prepare, spark):
    texts = [f"{value:.3f}" for value in NUMBERS]
    found = prepare(
        {"price": texts, "day": [f"{day:%Y-%m-%d}" for day in DAYS], "y": LABELS}, "y", by="spark"
    )
    later = spark.createDataFrame(
        [("1.5", "2024-02-03"), ("n/k", "?"), ("1e300", "")], "price string, day string"
    )
    vectors = found.vectors(later)
    assert vectors[0][:3].tolist() == [1.5, 2.0, 3.0]
    assert np.isnan(vectors[1]).all() and np.isnan(vectors[2]).all()
