"""New rows from files, read as training reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.table.source import find_source
from sparkgpu.predict.readers import read_csv, read_typed


def test_empty_values_are_missing_and_a_column_without_a_name_is_called_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(',w,z\n1,"",5\n2,a,\n', encoding="utf-8")
    (batch,) = read_csv(find_source(str(tmp_path / "a.csv")), ["_c0", "w"])
    assert pa.Table.from_batches([batch]).to_pydict() == {"_c0": ["1", "2"], "w": [None, "a"]}


def test_files_of_a_folder_have_its_columns_and_those_of_all_files(tmp_path: Path) -> None:
    first, second = (
        tmp_path / "t" / "year=2024" / "town=a%20b",
        tmp_path / "t" / "year=__HIVE_DEFAULT_PARTITION__",
    )
    for folder, table in (
        (first, pa.table({"a.b": pa.array([1, 2], pa.int32()), "s": ["x", "y"]})),
        (second, pa.table({"a.b": [3, 2**40], "q": [1.5, None]})),
    ):
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part.parquet")
    source = find_source(str(tmp_path / "t"))
    assert [batch.to_pydict() for batch in read_typed(source, None)] == [
        {"a.b": [1, 2], "s": ["x", "y"], "q": [None] * 2, "year": ["2024"] * 2, "town": ["a b"] * 2},
        {"a.b": [3, 2**40], "s": [None] * 2, "q": [1.5, None], "year": [None] * 2},
    ]
    (chosen, _) = read_typed(source, ["town", "absent", "a.b"])
    assert chosen.to_pydict() == {"town": ["a b"] * 2, "a.b": [1, 2]}
