"""A folder whose files have different columns: each row keeps the values of its file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkgpu.prepare.columns import ROW_ID

pytestmark = pytest.mark.spark

ROWS = 60


def part(*columns, seed=0):
    """Some of the columns of a table, with values of their own."""
    random = np.random.default_rng(seed)
    found = {
        "x": random.normal(size=ROWS),
        "word": random.choice(["a", "b", "c"], ROWS),
        "late": random.normal(size=ROWS),
        "late word": random.choice(["d", "e"], ROWS),
        "price": np.char.mod("%.2f", random.random(ROWS)),
        "y": random.choice(["no", "yes"], ROWS),
    }
    return pa.table({name: found[name] for name in columns})


NAMED = {"x": "x", "y": "y", "l": "late", "w": "late word"}


@pytest.fixture
def folder(tmp_path):
    """A folder of files by name."""

    def write(files, ending="parquet"):
        path = tmp_path / f"folder-{len(list(tmp_path.iterdir()))}"
        path.mkdir()
        writer = pa.orc.write_table if ending == "orc" else pq.write_table
        for number, table in enumerate(files):
            writer(table, path / f"{number}.{ending}")
        return path

    return write


FILES = {
    "a later file has more": (part("x", "y"), part("x", "y", "late", seed=1), part("x", "y", "late word")),
    "the first has more": (part("x", "word", "late", "price", "y"), part("y", "x", "word", seed=1)),
    "another order": (part("x", "word", "y"), part("word", "y", "x", seed=1)),
    "the target is absent in the first": (part("x", "word"), part("x", "word", "y", seed=1)),
    "only the target is left": (part("x", "word", "y"), part("y", seed=1), part("x", seed=2)),
}


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
@pytest.mark.parametrize("ending", ["parquet", "orc"])
def test_spark_reads_a_folder_of_files_with_other_columns_whole(read, folder, files, ending):
    found = read(folder(files, ending))
    expected = pa.concat_tables(files, promote_options="default").to_pandas()
    assert found.pop(ROW_ID).tolist() == list(range(len(expected)))
    pd.testing.assert_frame_equal(found[list(expected)], expected)


@pytest.mark.parametrize(
    ("ending", "files", "features", "rows", "notes"),
    [
        ("parquet", ["xy", "yx"], ["x"], 120, []),
        ("parquet", ["xy", "xy", "xlwy", "xlwy"], ["x", "late", "late word"], 240,
         ["columns 'late', 'late word' are absent in 2 of 4 files and null there"]),
        ("parquet", ["x", "xy", "xy"], ["x"], 120, ["column 'y' is absent in 1 of 3 files and null there"]),
        ("parquet", ["xy", "xy", "lx", "x"], ["x", "late"], 120,
         ["column 'y' is absent in 2 of 4 files and null there",
          "column 'late' is absent in 3 of 4 files and null there"]),
        ("orc", ["xy", "ly"], ["x", "late"], 120,
         ["columns 'x', 'late' are absent in 1 of 2 files and null there"]),
    ],
)  # fmt: skip
def test_columns_that_only_some_files_have_are_used_and_said(
    prepare, folder, ending, files, features, rows, notes
):
    tables = [part(*map(NAMED.get, names), seed=seed) for seed, names in enumerate(files)]
    found = prepare(folder(tables, ending), "y")
    assert [*found.schema.notes] == notes
    assert list(found.kinds) == features and found.schema.rows == rows
    assert found.schema.rows + found.schema.rows_refused == ROWS * len(files)
    table, whole = found.table(), pa.concat_tables(tables, promote_options="default").to_pandas()
    for name in features:
        expected = whole[name] if name == "late word" else whole[name].astype(np.float32)
        pairs = zip(table[name.replace(" ", "_")], expected[table["row_id"]], strict=True)
        assert all(one == other or (pd.isna(one) and pd.isna(other)) for one, other in pairs)


def test_lines_of_json_keep_the_columns_of_every_file(read, converted, tmp_path):
    (tmp_path / "t").mkdir()
    for number, columns in enumerate((("x", "y"), ("x", "late", "y"))):
        frame = part(*columns, seed=number).to_pandas()
        frame.to_json(tmp_path / "t" / f"{number}.jsonl", orient="records", lines=True)
    found = converted(tmp_path / "t").read()
    assert found.column_names == ["x", "y", "late"] and found["late"].null_count == ROWS
    pd.testing.assert_frame_equal(read(tmp_path / "t").drop(columns=ROW_ID), found.to_pandas())
