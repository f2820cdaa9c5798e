"""Rows of the prepared table as a file of columns that H2O reads in place."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from sparkgpu.engines.trees import column_rows, shared_files
from sparkgpu.engines.trees.column_rows import (
    ColumnRows,
    WantedColumn,
    kind_of_places,
    read_column_rows,
    write_column_rows,
)
from sparkgpu.engines.trees.h2o_local_frames import wanted_columns
from sparkgpu.engines.trees.shared_files import share
from sparkgpu.errors import DataError, DeviceError
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import Feature, SplitName, TableSchema

WANTED = (
    WantedColumn(name="row_id", kind="int64"),
    WantedColumn(name="label", kind="uint8", levels=("0", "1")),
    WantedColumn(name="size", kind="float32"),
    WantedColumn(name="colour", kind="uint8", words=("red", "blue")),
    WantedColumn(name="shape", kind="int32", words=("round",), levels=("round",)),
)
NO_LEVEL = WantedColumn(name="shape", kind="uint8", words=())


def written(root: Path, row_ids: list[list[int]]) -> RunPaths:
    """A file for each list; all values follow from the row id, and some are missing."""
    paths = RunPaths(root=root)
    paths.split("train").mkdir(parents=True)
    for part, ids in enumerate(row_ids):
        columns = {
            "row_id": pa.array(ids, pa.int64()),
            "label": pa.array([i % 2 for i in ids], pa.int32()),
            "fold": pa.array([i % 3 for i in ids], pa.int32()),
            "size": pa.array([None if i % 5 == 4 else i / 3 for i in ids], pa.float64()),
            "colour": pa.array([("red", "blue", "pink", None)[i % 4] for i in ids]),
            "shape": pa.array([(None, "round")[i % 2] for i in ids], pa.string()),
        }
        pq.write_table(pa.table(columns), paths.split("train") / f"part-{part}.parquet", row_group_size=2)
    return paths


def rows_of(paths: RunPaths, split: SplitName, fold: int | None = None) -> ColumnRows:
    file = paths.root / f"{split}.columns"
    write_column_rows(paths, split, fold, WANTED, file)
    return read_column_rows(file, WANTED)


def read(found: ColumnRows, name: str) -> NDArray[np.generic]:
    column = next(column for column in found.columns if column.name == name)
    return np.fromfile(found.file, column.kind, found.rows, offset=column.offset)


ORDERS = {
    "one file": [[0, 1, 2, 3, 4, 5, 6, 7, 8]],
    "files one after the other": [[0, 1, 2, 3], [4, 5, 6, 7, 8]],
    "files that overlap": [[1, 4, 7], [0, 3, 6], [2, 5, 8]],
    "files in another order": [[5, 6, 7, 8], [0, 1, 2, 3, 4]],
}


@pytest.mark.parametrize("row_ids", ORDERS.values(), ids=ORDERS)
def test_columns_hold_the_rows_in_the_order_of_their_ids(
    tmp_path: Path, row_ids: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_rows, "_BATCH_ROWS", 2)
    monkeypatch.setattr(column_rows, "_MOST_HELD_BYTES", 1)  # lets go of its pages after each batch
    paths = written(tmp_path, row_ids)
    found = rows_of(paths, "train")
    assert found.rows == 9
    np.testing.assert_array_equal(read(found, "row_id"), np.arange(9))
    np.testing.assert_array_equal(read(found, "label"), [0, 1, 0, 1, 0, 1, 0, 1, 0])
    size_N = np.array([np.nan if i % 5 == 4 else i / 3 for i in range(9)], np.float32)
    np.testing.assert_array_equal(read(found, "size"), size_N)
    np.testing.assert_array_equal(read(found, "colour"), [0, 1, 255, 255, 0, 1, 255, 255, 0])
    gap = -(2**31)
    np.testing.assert_array_equal(read(found, "shape"), [gap, 0, gap, 0, gap, 0, gap, 0, gap])
    assert [column.levels for column in found.columns] == [(), ("0", "1"), (), (), ("round",)]


def test_a_fold_is_validated_on_and_the_others_are_trained_on(tmp_path: Path) -> None:
    paths = written(tmp_path, ORDERS["files that overlap"])
    train = rows_of(paths, "train", 1)
    valid = rows_of(paths, "valid", 1)
    np.testing.assert_array_equal(read(train, "row_id"), [0, 2, 3, 5, 6, 8])
    np.testing.assert_array_equal(read(valid, "row_id"), [1, 4, 7])
    np.testing.assert_array_equal(read(valid, "colour"), [1, 0, 255])


def test_a_feature_without_a_level_is_missing_everywhere(tmp_path: Path) -> None:
    paths = written(tmp_path, ORDERS["one file"])
    write_column_rows(paths, "train", None, [NO_LEVEL], tmp_path / "columns")
    found = read_column_rows(tmp_path / "columns", [NO_LEVEL])
    np.testing.assert_array_equal(read(found, "shape"), [255] * 9)


def test_an_infinite_number_is_missing_to_h2o() -> None:
    values = pa.array([1.0, float("inf"), float("-inf"), None])
    found = WantedColumn(name="size", kind="float32").values(values)
    np.testing.assert_array_equal(found, np.array([1, np.nan, np.nan, np.nan], np.float32))


def test_the_mark_of_a_missing_level_is_no_place() -> None:
    assert kind_of_places(255) == "uint8"  # the places 0 to 254
    assert kind_of_places(256) == "int32"


def test_a_full_disk_is_told_before_the_first_row(tmp_path: Path) -> None:
    paths = written(tmp_path, ORDERS["one file"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(DeviceError, match=r"no room for 0\.0 GiB, the rows for H2O \(File too large\)"):
            write_column_rows(paths, "train", None, WANTED, tmp_path / "columns")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "columns").exists()


def test_a_fold_without_rows_is_refused(tmp_path: Path) -> None:
    paths = written(tmp_path, [[0, 1, 3]])
    with pytest.raises(DataError, match="the prepared table holds no rows of split valid"):
        write_column_rows(paths, "valid", 2, WANTED, tmp_path / "columns")


def test_lanes_share_a_file_until_the_last_one_drops_it(tmp_path: Path) -> None:
    written: list[Path] = []

    def write(target: Path) -> None:
        written.append(target)
        target.write_text("rows")

    common = tmp_path / "columns" / "a.columns"
    first, second = (share(common, tmp_path / f"lane-{lane}", write, print) for lane in range(2))
    assert len(written) == 1
    first.drop()
    assert second.own.read_text() == "rows"
    assert common.exists()
    second.drop()
    assert not common.exists()


def test_what_a_killed_lane_left_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "columns").mkdir()
    (tmp_path / "columns" / "a.part").write_text("half")
    with pytest.raises(OSError, match="full"):
        share(tmp_path / "columns" / "a.columns", tmp_path / "own", full, print)
    common = tmp_path / "columns" / "a.columns"
    shared = share(common, tmp_path / "own", lambda to: to.write_text("whole"), print)
    assert shared.own.read_text() == "whole"


def full(target: Path) -> None:
    target.write_text("half")
    raise OSError("the disk is full")


def test_a_lane_that_waits_for_another_says_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "_ALIVE_S", 0.0)
    common, lives = tmp_path / "columns" / "a.columns", threading.Event()

    def write(target: Path) -> None:
        second.start()
        assert lives.wait(30)
        target.write_text("whole")

    def share_too() -> None:
        share(common, tmp_path / "second", write, lives.set)

    second = threading.Thread(target=share_too)
    first = share(common, tmp_path / "first", write, print)
    second.join(30)
    assert first.own.samefile(tmp_path / "second")


def test_the_columns_of_a_table_with_folds_are_found_without_a_file_for_validation(tmp_path: Path) -> None:
    paths = written(tmp_path, [[0, 1, 2], [3, 4]])
    assert not paths.split("valid").exists()  # as Spark leaves a split without rows
    features = (
        Feature(name="size", source="size", kind="numeric", pipeline="size"),
        Feature(
            name="colour", source="colour", kind="categorical", pipeline="colour", levels=("red", "blue")
        ),
    )
    schema = TableSchema(
        source="made", target="y", task="regression", features=features, weighted=False, folds=3, rows=5,
        splits={"train": 5, "valid": 0, "test": 0}, fingerprint="",
    )  # fmt: skip
    found = wanted_columns(paths, schema, {"colour": ("blue", "red")})
    assert [column.name for column in found] == ["row_id", "label", "size", "colour"]
