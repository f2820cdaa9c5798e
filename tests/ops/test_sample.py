"""A sample stands for its whole table: rows of all parts, the right count, the task of the target."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.config import toml
from sparkgpu.core.errors import DataError
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.ops.advise.sample import take_sample

ROWS = 10_000


@pytest.fixture
def table() -> pa.Table:
    """A sorted table: the first rows alone would have one class."""
    place = np.arange(ROWS)
    kind = np.where(place < ROWS // 2, "a", "b")
    return pa.table({"place": place, "kind": kind, "value": place / 7, "count": place % 5})


def sampled(source: Path, target: str, folder: Path, most: int = 1_000, task: str | None = None):  # type: ignore[no-untyped-def]
    config = toml.load(options={"data.target": target, "data.task": task})
    return take_sample(find_source(str(source)), config, most, folder)


def test_rows_come_from_all_parts_of_a_table(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3_000)
    found = sampled(tmp_path / "t.parquet", "kind", tmp_path)
    rows = pq.read_table(found.file)
    assert found.rows == rows.num_rows == 1_000
    assert found.whole_rows == ROWS
    assert rows["place"][0].as_py() < 100 and rows["place"][-1].as_py() > ROWS - 100
    assert (found.size.task, found.size.num_classes, found.size.num_features) == ("binary", 2, 3)
    assert found.size.train_rows == 7_000
    assert (found.num_words, found.num_flags) == (0, 0)


def test_a_compressed_csv_has_the_types_of_all_its_rows(table: pa.Table, tmp_path: Path) -> None:
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    found = sampled(tmp_path / "t.csv.gz", "value", tmp_path)
    assert (found.rows, found.whole_rows, found.size.task) == (1_000, ROWS, "regression")
    assert found.num_words == 1, "numbers written as text are numbers"


def test_few_whole_numbers_are_classes_unless_a_number_is_asked_for(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "t.parquet")
    found = sampled(tmp_path / "t.parquet", "count", tmp_path)
    assert (found.size.task, found.size.num_classes) == ("multiclass", 5)
    assert sampled(tmp_path / "t.parquet", "count", tmp_path, task="regression").size.task == "regression"


def test_rows_of_a_class_that_no_split_could_share_are_left_out(tmp_path: Path) -> None:
    kind = ["a"] * 500 + ["b"] * 499 + ["c"]
    pq.write_table(pa.table({"x": range(1000), "kind": kind}), tmp_path / "t.parquet")
    found = sampled(tmp_path / "t.parquet", "kind", tmp_path)
    assert set(pq.read_table(found.file)["kind"].to_pylist()) == {"a", "b"}
    assert (found.rows, found.size.num_classes) == (999, 3)


def test_what_cannot_be_sampled_is_refused_in_one_sentence(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="target 'knd': no such column"):
        sampled(tmp_path / "t.parquet", "knd", tmp_path)
    pq.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(DataError, match="the table has no rows"):
        sampled(tmp_path / "empty.parquet", "kind", tmp_path)
    catalog = Source(name="table:a.b", location="a.b", format=None)
    with pytest.raises(DataError, match="Spark has to open it"):
        take_sample(catalog, toml.load(), 10, tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        sampled(tmp_path / "broken.parquet", "kind", tmp_path)
