"""Files of a split are put in the order of their row ids, range by range."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.table import row_order
from sparkgpu.table.row_order import ordered_files, put_in_order, stretches

SOURCE_FILES = np.array_split(np.arange(60_000), 40)
ORDER = np.random.default_rng(5).permutation(40)


def rows_of(ids):
    words = pa.array([None if i % 7 == 0 else f"w{i % 5}" for i in ids])
    return pa.table({"row_id": pa.array(ids, pa.int64()), "x": np.asarray(ids) / 3, "word": words})


def write(folder, *files):
    """Each file as one Spark task writes it: some stretches of the source one after the other."""
    folder.mkdir(parents=True)
    for number, ids in enumerate(files):
        whole = rows_of(ids)
        with pq.ParquetWriter(folder / f"part-{number:05d}.parquet", whole.schema) as writer:
            for stretch in stretches(np.asarray(ids)):
                writer.write_table(whole.slice(stretch.start, stretch.stop - stretch.start))


def read(files):
    return pa.concat_tables(pq.ParquetFile(file).read() for file in files)


@pytest.fixture
def shuffled(tmp_path):
    """40 source files that four tasks read in an order of their own."""
    folder = tmp_path / "split=train"
    write(
        folder, *(np.concatenate([SOURCE_FILES[number] for number in part]) for part in ORDER.reshape(4, 10))
    )
    return folder


def test_rows_of_tasks_that_read_several_files_are_put_in_order(shuffled):
    put_in_order(shuffled)
    assert read(sorted(shuffled.glob("*"))).equals(rows_of(np.arange(60_000)))
    assert [path.name for path in shuffled.parent.iterdir()] == ["split=train"]


def test_only_the_rows_of_one_range_are_in_memory(shuffled, monkeypatch):
    monkeypatch.setattr(row_order, "_RANGE_VALUES", 3 * 5_000)
    held = []
    whole = row_order._between
    monkeypatch.setattr(row_order, "_between", lambda *these: held.append(whole(*these)) or held[-1])
    put_in_order(shuffled)
    assert sum(rows.num_rows for rows in held) == 60_000
    assert max(rows.num_rows for rows in held) <= 5_000
    assert read(sorted(shuffled.glob("*"))).equals(rows_of(np.arange(60_000)))


def test_files_that_only_have_other_names_are_not_written_again(tmp_path):
    folder = tmp_path / "split=valid"
    write(folder, range(500, 900), range(500), range(1_000, 1_100))
    before = {file.stat().st_ino for file in folder.iterdir()}
    put_in_order(folder)
    assert {file.stat().st_ino for file in folder.iterdir()} == before
    assert read(sorted(folder.iterdir()))["row_id"].to_pylist() == [*range(900), *range(1_000, 1_100)]


def test_rows_out_of_order_inside_one_row_group_are_found(tmp_path):
    folder = tmp_path / "split=test"
    write(folder, [*range(300, 600), *range(300)])
    assert pq.read_metadata(folder / "part-00000.parquet").num_row_groups == 1
    assert read(ordered_files(folder, tmp_path))["row_id"].to_pylist() == list(range(600))


def test_a_table_in_order_is_read_where_it_is(tmp_path):
    folder = tmp_path / "split=train"
    write(folder, range(10), [], range(10, 30))
    assert ordered_files(folder, tmp_path) == [folder / "part-00000.parquet", folder / "part-00002.parquet"]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.arange(10_000), [(0, 10_000)]),
        (np.arange(0, 50_000, 5), [(0, 10_000)]),  # the rows of a split have gaps
        (np.r_[90_000:95_000, 0:5_000], [(0, 5_000), (5_000, 10_000)]),
        (np.r_[0:5_000, 90_000:95_000], [(0, 5_000), (5_000, 10_000)]),
        (np.r_[90_000:91_000, 0:5_000], [(0, 6_000)]),  # a thousand rows are too few for their own
        (np.arange(0), []),
    ],
)
def test_a_stretch_ends_where_the_ids_jump(ids, expected):
    assert [(found.start, found.stop) for found in stretches(ids)] == expected
