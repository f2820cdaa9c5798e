"""The rows of a CSV file as predictions read them: as training did."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sparkgpu.core.table.source import find_source
from sparkgpu.predict.readers.text import read_csv


def test_empty_values_are_missing_and_a_column_without_a_name_is_called_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(',w,z\n1,"",5\n2,a,\n', encoding="utf-8")
    (batch,) = read_csv(find_source(str(tmp_path / "a.csv")), ["_c0", "w"])
    assert pa.Table.from_batches([batch]).to_pydict() == {"_c0": ["1", "2"], "w": [None, "a"]}
