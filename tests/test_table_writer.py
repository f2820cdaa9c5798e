"""The files of the prepared table: columns, types, row groups, and a name that only complete files have."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
from made_table import feature

from sparkgpu.table import writer
from sparkgpu.table.writer import SplitFile, table_rows

FEATURES = (feature("width"), feature("colour", "red", "blue"))


def rows_of(ids):
    slot_NF = np.stack([np.asarray(ids) / 2, np.asarray(ids) % 2], axis=1).astype(np.float32)
    return table_rows(FEATURES, np.asarray(ids), np.asarray(ids) % 3, None, None, slot_NF)


def test_a_file_holds_the_ids_the_label_and_one_float_column_for_each_feature_without_nulls(tmp_path):
    slot_NF = np.array([[0.5, 1], [np.nan, np.nan], [1e-30, 0]], dtype=np.float32)
    file = SplitFile(tmp_path / "split=train", "part-00000.parquet")
    file.add(
        table_rows(FEATURES, np.arange(3), np.array([1, 0, 1]), np.array([2.0, 1, 1]), np.arange(3), slot_NF)
    )
    assert file.close() == 3
    found = pq.ParquetFile(tmp_path / "split=train" / "part-00000.parquet").read()
    assert {field.name: str(field.type) for field in found.schema} == {
        "row_id": "int64", "label": "int32", "weight": "double", "fold": "int32",
        "width": "float", "colour": "float",
    }  # fmt: skip
    assert not any(field.nullable for field in found.schema)
    np.testing.assert_array_equal(np.stack([found["width"], found["colour"]], axis=1), slot_NF)


def test_a_file_has_its_name_only_when_it_is_complete_and_none_without_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "GROUP_ROWS", 10)
    assert SplitFile(tmp_path, "none.parquet").close() == 0
    file = SplitFile(tmp_path, "part-00000.parquet")
    file.add(rows_of(range(20)))
    assert [path.name for path in tmp_path.iterdir()] == [".part-00000.parquet"]
    assert file.close() == 20
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000.parquet"]


def test_row_groups_are_of_like_size(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "GROUP_ROWS", 10_000)
    file = SplitFile(tmp_path, "a.parquet")
    for first in (0, 4_000, 8_000, 100_000):
        file.add(rows_of(range(first, first + 4_000)))
    file.add(rows_of(range(200_000, 225_000)))
    file.close()
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [12_000, 9_667, 9_667, 9_666]
    assert groups[0].column(0).statistics.min == 0


def test_a_wide_table_waits_in_memory_for_fewer_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_GROUP_VALUES", 4 * 5_000)
    file = SplitFile(tmp_path, "a.parquet")
    for first in range(0, 20_000, 1_000):
        file.add(rows_of(range(first, first + 1_000)))
    file.close()
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 4
