"""Rows encoded without Spark are the rows that Spark prepared, from files of every format."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkgpu.config.registry.formats import FORMATS
from sparkgpu.prepare.encoding import Encoder, labels
from sparkgpu.prepare.level_means import load_means
from sparkgpu.table.rows import Rows, read_rows
from sparkgpu.table.source import find_source

pytestmark = pytest.mark.spark

ROWS = 900
RANDOM = np.random.default_rng(0)
FIRST = datetime(2023, 12, 30, 22, 59, 7, 250_000, UTC)


def gaps(values: list[object], every: int) -> list[object]:
    return [None if i % every == 0 else value for i, value in enumerate(values)]


def everything() -> pa.Table:
    """One column of every kind that a table may hold, with gaps."""
    number_N = RANDOM.normal(size=ROWS) * 1e3
    moments = [FIRST + timedelta(hours=31 * i, seconds=i) for i in range(ROWS)]
    return pa.table(
        {
            "price": pa.array(gaps(number_N.tolist(), 7), pa.float64()),
            "size": pa.array(number_N.astype(np.float32), pa.float32()),
            "count": pa.array(gaps([int(x) for x in number_N], 11), pa.int32()),
            "large": pa.array([int(x * 1e12) for x in number_N], pa.int64()),
            "wild": pa.array([[1.5, float("inf"), float("nan"), 1e300, -2.0][i % 5] for i in range(ROWS)]),
            "owns": pa.array(gaps([i % 3 == 0 for i in range(ROWS)], 13), pa.bool_()),
            "exact": pa.array([Decimal(f"{x:.2f}") for x in number_N], pa.decimal128(12, 2)),
            "word": pa.array(gaps([f"w {i * i % 23}" for i in range(ROWS)], 9)),
            "user": pa.array([f"u{int(abs(x)) % 400}" for x in number_N]),
            "zone": pa.array([int(abs(x)) % 5 for x in number_N], pa.int64()),
            "rate": pa.array([[0.1, 2.0, 1e-7, 12345678.5][i % 4] for i in range(ROWS)], pa.float64()),
            "text": pa.array([f" {x:.3f}" if i % 8 else "NA" for i, x in enumerate(number_N)]),
            "when": pa.array(gaps(moments, 10), pa.timestamp("us", "UTC")),
            "local": pa.array([m.replace(tzinfo=None) for m in moments], pa.timestamp("us")),
            "day": pa.array([date(2020, 1, 1) + timedelta(days=5 * i) for i in range(ROWS)]),
            "said": pa.array(
                [f"{m:%Y-%m-%dT%H:%M:%S}+02:00" if i % 6 else "" for i, m in enumerate(moments)]
            ),
            "y": pa.array(["yes" if x > 100 else "no" for x in number_N]),
        }
    )


ROLES = {"zone": "categorical", "rate": "categorical"}


def encoded(path: Path, found) -> Rows:
    """All rows of the file, by the reader of its format."""
    source = find_source(str(path))
    encoder = Encoder(found.schema, load_means(found.paths.table, found.schema.features))
    read = FORMATS.find(source.format).loaded_from(FORMATS.find(source.format).read)
    parts, labelled, first = [], [], 0
    for batch in read(source, [*encoder.columns, found.schema.target]):
        encoder.check(batch.schema.names, "the file")
        parts.append(encoder.rows(batch, first=first))
        labelled.append(labels(batch.column(found.schema.target), found.schema))
        first += batch.num_rows
    return Rows(
        row_id_N=np.concatenate([part.row_id_N for part in parts]),
        label_N=np.concatenate(labelled),
        weight_N=None,
        numeric_NF=np.concatenate([part.numeric_NF for part in parts]),
        codes_NK=np.concatenate([part.codes_NK for part in parts]),
    )


def assert_same(path: Path, found) -> None:
    rows = encoded(path, found)
    numeric = [feature.name for feature in found.schema.numeric]
    words = [feature.name for feature in found.schema.categorical]
    for split in ("valid", "test"):
        wanted = read_rows(found.paths, found.schema, split)
        own = wanted.row_id_N
        np.testing.assert_array_equal(rows.label_N[own], wanted.label_N)
        for place, name in enumerate(numeric):
            np.testing.assert_array_equal(rows.numeric_NF[own, place], wanted.numeric_NF[:, place], name)
        for place, name in enumerate(words):
            np.testing.assert_array_equal(rows.codes_NK[own, place], wanted.codes_NK[:, place], name)


@pytest.mark.parametrize(
    ("most", "by_spark"),
    [
        (1000, False),
        pytest.param(1000, True, marks=pytest.mark.slow),
        pytest.param(20, False, marks=pytest.mark.slow),
        (20, True),
    ],
)
def test_parquet_rows_are_encoded_as_they_were_prepared(prepare, tmp_path, by_spark, most):
    path = tmp_path / "a.parquet"
    pq.write_table(everything(), path, row_group_size=250)
    found = prepare(path, "y", {"data.roles": ROLES, "data.max_categories": most}, by_spark=by_spark)
    assert {"price", "owns", "wild", "zone", "when_hour", "said_hour", "text"} <= {
        feature.name for feature in found.schema.features
    }
    assert any(feature.means_of for feature in found.schema.features) == (most == 20)
    assert_same(path, found)


@pytest.mark.parametrize("ending", ["csv", pytest.param("csv.gz", marks=pytest.mark.slow), "jsonl", "orc"])
def test_rows_of_other_files_are_encoded_as_they_were_prepared(prepare, tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    table = everything().drop_columns(["wild"])
    if ending == "orc":
        pa.orc.write_table(table.drop_columns(["when"]), path)  # Spark reads no zones there
    else:
        frame = table.to_pandas()
        frame["count"], frame["owns"] = frame["count"].astype("Int64"), frame["owns"].astype("boolean")
        if ending == "jsonl":
            frame["exact"] = frame["exact"].astype(float)
            for name in ("when", "local", "day"):
                frame[name] = frame[name].map(lambda moment: None if moment is None else str(moment))
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_csv(path, index=False)
    found = prepare(path, "y", {"data.roles": ROLES})
    assert_same(path, found)


def test_folder_names_and_absent_columns_are_encoded_as_they_were_prepared(prepare, tmp_path):
    table = everything().select(["price", "word", "y"])
    folder = tmp_path / "t"
    for year in (2023, 2024):
        (folder / f"year={year}").mkdir(parents=True)
        part = table.slice(0 if year == 2023 else 450, 450)
        columns = ["price", "word", "y"] if year == 2023 else ["y", "price"]
        pq.write_table(part.select(columns), folder / f"year={year}" / "a.parquet")
    found = prepare(folder, "y")
    assert {"year", "word"} <= {feature.name for feature in found.schema.features}
    assert_same(folder, found)


def test_numbers_of_a_regression_and_whole_classes_are_labelled_alike(prepare, tmp_path):
    table = (
        everything().select(["price", "count", "word"]).filter(pa.array([i % 77 != 0 for i in range(ROWS)]))
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table.append_column("k", pa.array([float(i % 3) for i in range(len(table))])), path)
    assert_same(path, prepare(path, "k"))
    assert_same(path, prepare(path, "price"))
