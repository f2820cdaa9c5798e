"""A table that changes between two readings is refused: half old and half new is no table."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.prepare import prepare as preparation
from sparkgpu.prepare.text_files import TextFiles

ROWS = 200


def write(path: Path, shift: int = 0) -> None:
    columns = {"x": [(place + shift) * 3 % 17 / 2 for place in range(ROWS)], "y": ["a", "b"] * (ROWS // 2)}
    if path.suffix == ".csv":
        lines = [f"{x},{y}" for x, y in zip(*columns.values(), strict=True)]
        path.write_text("\n".join(["x,y", *lines, ""]))
    else:
        pq.write_table(pa.table(columns), path)


def replaced(path: Path) -> None:
    write(path.with_name("new" + path.suffix), 7)
    path.with_name("new" + path.suffix).replace(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "replaced": replaced,
    "written again": lambda path: write(path, 7),
    "appended": lambda path: path.open("ab").write(b"1,a\n"),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "removed": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("after", "by"),
    [("look", "arrow"), ("fitted_rule", "arrow"), ("features_of", "arrow"),
     pytest.param("features_of", "held", marks=pytest.mark.spark)],
)  # fmt: skip
def test_parquet_that_changes_between_two_passes(
    prepare: Any, refused: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str, after: str,
    by: str,
) -> None:  # fmt: skip
    path = tmp_path / "a.parquet"
    write(path)
    real = getattr(preparation, after)

    def then_changed(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        monkeypatch.setattr(preparation, after, real)
        CHANGES[change](path)
        return found

    monkeypatch.setattr(preparation, after, then_changed)
    text = refused(prepare, path, "y", by=by)
    assert "it was changed, replaced or removed" in text or "damaged, cut short" in text


@pytest.mark.parametrize("change", CHANGES)
def test_text_that_changes_between_the_search_for_types_and_the_reading(
    prepare: Any, refused: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "a.csv"
    write(path)
    real, times = TextFiles.parsed, iter(range(9))

    def parsed(self: TextFiles, parse: Any) -> Any:
        if next(times) == 1:
            CHANGES[change](path)
        return real(self, parse)

    monkeypatch.setattr(TextFiles, "parsed", parsed)
    assert f"{path}: " in refused(prepare, path, "y")
