"""Rows of the prepared table as a file of columns that H2O reads in place."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.errors import DataError, DeviceError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import SplitName
from sparkgpu.h2o import frames
from sparkgpu.h2o.frames import WantedColumn, write_columns

WANTED = (
    WantedColumn(name="label", kind="float32", levels=("0", "1")),
    WantedColumn(name="size", kind="float32"),
    WantedColumn(name="color", kind="float32", order=(2, 0)),
)
GAP = float("nan")


def written(root: Path, *row_ids: list[int]) -> RunPaths:
    """A file for each list; all values follow from the row id, and some are missing."""
    paths = RunPaths(root=root)
    paths.split("train").mkdir(parents=True)
    for part, ids in enumerate(row_ids):
        columns = {
            "row_id": pa.array(ids, pa.int64()),
            "label": pa.array([i % 2 for i in ids], pa.int32()),
            "fold": pa.array([i % 3 for i in ids], pa.int32()),
            "size": pa.array([(GAP, float("inf"), i / 3)[min(i % 5, 2)] for i in ids], pa.float32()),
            "color": pa.array([(0, 1, 2, GAP)[i % 4] for i in ids], pa.float32()),
        }
        pq.write_table(pa.table(columns), paths.split("train") / f"part-{part}.parquet", row_group_size=2)
    return paths


def columns_of(file: Path, rows: int) -> dict[str, np.ndarray]:
    """The columns, one after the other from multiples of 64 bytes on."""
    begins = [place * -(-4 * rows // 64) * 64 for place in range(3)]
    return {
        one.name: np.fromfile(file, one.kind, rows, offset=begin)
        for one, begin in zip(WANTED, begins, strict=True)
    }


@pytest.mark.parametrize(
    ("split", "fold", "ids"),
    [("train", None, range(9)), ("train", 1, [0, 2, 3, 5, 6, 8]), ("valid", 1, [1, 4, 7])],
)
def test_columns_hold_the_rows_of_the_table_or_of_a_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: SplitName, fold: int | None, ids: Sequence[int]
) -> None:
    monkeypatch.setattr(frames, "_BATCH_ROWS", 2)
    paths = written(tmp_path, [0, 1, 2, 3], [4, 5, 6, 7, 8])
    assert write_columns(paths, split, fold, WANTED, tmp_path / "columns") == len(ids)
    found = columns_of(tmp_path / "columns", len(ids))
    np.testing.assert_array_equal(found["label"], [i % 2 for i in ids])
    size_N = np.array([GAP if i % 5 < 2 else i / 3 for i in ids], np.float32)  # infinity is missing
    np.testing.assert_array_equal(found["size"], size_N)
    np.testing.assert_array_equal(found["color"], [(1, GAP, 0, GAP)[i % 4] for i in ids])


def test_a_full_disk_is_told_before_the_first_row(tmp_path: Path) -> None:
    paths = written(tmp_path, [0, 1, 2, 3])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(DeviceError, match=r"no room for 0\.0 GiB, the rows for H2O \(File too large\)"):
            write_columns(paths, "train", None, WANTED, tmp_path / "columns")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "columns").exists()


def test_a_fold_without_rows_is_refused(tmp_path: Path) -> None:
    paths = written(tmp_path, [0, 1, 3])
    with pytest.raises(DataError, match="the prepared table holds no rows of split valid"):
        write_columns(paths, "valid", 2, WANTED, tmp_path / "columns")
