"""A folder whose files have different columns: each row keeps the values of its file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sparkgpu.prepare.columns import ROW_ID

pytestmark = pytest.mark.spark

ROWS = 60


def part(letters, seed=0):
    """Some of the columns of a table, with values of their own."""
    random = np.random.default_rng(seed)
    found = {
        "x": random.normal(size=ROWS),
        "word": random.choice(["a", "b", "c"], ROWS),
        "late": random.normal(size=ROWS),
        "price": np.char.mod("%.2f", random.random(ROWS)),
        "y": random.choice(["no", "yes"], ROWS),
    }
    return pa.table({name: found[name] for letter in letters for name in found if name[0] == letter})


@pytest.mark.parametrize("ending", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("files", "features", "rows", "notes"),
    [
        (["xwy", "wyx"], ["x", "word"], 120, []),  # another order
        (["xy", "xy", "xlwy", "xlwy"], ["x", "late", "word"], 240,
         ["columns 'late', 'word' are absent in 2 of 4 files and null there"]),
        (["xwlpy", "yxw"], ["x", "word", "late", "price"], 120,
         ["'price' is text that holds numbers and is read as such",
          "columns 'late', 'price' are absent in 1 of 2 files and null there"]),
        (["x", "xy", "xy"], ["x"], 120, ["column 'y' is absent in 1 of 3 files and null there"]),
        (["xwy", "xy", "lx", "x"], ["x", "word", "late"], 120,
         ["columns 'word', 'late' are absent in 3 of 4 files and null there",
          "column 'y' is absent in 2 of 4 files and null there"]),
    ],
)  # fmt: skip
def test_columns_that_only_some_files_have_are_used_and_said(
    prepare, read, folder, ending, files, features, rows, notes
):
    tables = [part(letters, seed) for seed, letters in enumerate(files)]
    path, whole = folder(tables, ending), pa.concat_tables(tables, promote_options="default").to_pandas()
    by_spark = read(path)
    assert by_spark.pop(ROW_ID).tolist() == list(range(len(whole)))
    pd.testing.assert_frame_equal(by_spark[list(whole)], whole)
    found = prepare(path, "y")
    assert list(found.kinds) == features and [*found.schema.notes] == notes
    assert (found.schema.rows, found.schema.rows_refused) == (rows, len(whole) - rows)
    table = found.table()
    for feature in found.schema.features:
        own = whole[feature.name][table["row_id"]].reset_index(drop=True)
        expected = own.astype(np.float32) if feature.kind == "numeric" else own.where(own.notna(), np.nan)
        pd.testing.assert_series_equal(table[feature.name], expected)


def test_lines_of_json_keep_the_columns_of_every_file(read, converted, tmp_path):
    (tmp_path / "t").mkdir()
    for number, columns in enumerate(("xy", "xly")):
        frame = part(columns, number).to_pandas()
        frame.to_json(tmp_path / "t" / f"{number}.jsonl", orient="records", lines=True)
    found = converted(tmp_path / "t").read()
    assert found.column_names == ["x", "y", "late"] and found["late"].null_count == ROWS
    pd.testing.assert_frame_equal(read(tmp_path / "t").drop(columns=ROW_ID), found.to_pandas())
