"""Levels of categories stand in the order of the labels of their training rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from planted_trees import Table, table

from sparkgpu.engines.trees.level_order import on_a_line, ordered_levels


def order(planted: Table, fold: int | None = None) -> tuple[str, ...]:
    (feature,) = planted.schema.features
    codes = ordered_levels(planted.paths.split("train"), planted.schema, fold)[feature.name]
    return tuple(feature.levels[code] for code in codes)


def texts(*given: str | None) -> np.ndarray:
    return np.array(given, dtype=object)


def test_levels_stand_by_their_mean_label(tmp_path: Path) -> None:
    text_N = np.tile(texts("a", "b", "c"), 50)
    value_N = np.tile([2.0, 3.0, 1.0], 50)
    planted = table(tmp_path, value_N, None, {"text": (text_N, ("a", "b", "c"))})
    assert order(planted) == ("c", "a", "b")


def test_rare_levels_stand_together_whatever_their_labels_are(tmp_path: Path) -> None:
    rare = [f"rare {number}" for number in range(8)]
    text_N = texts(*["low"] * 100, *["high"] * 100, *rare * 2)
    label_N = np.array([0] * 90 + [1] * 10 + [1] * 90 + [0] * 10 + [0, 1] * 4 + [0, 1] * 4)
    levels = ("low", "high", *rare)
    planted = table(tmp_path, label_N, None, {"text": (text_N, levels)}, split_N=np.full(216, "train"))
    assert order(planted) == ("low", *rare, "high")


def test_a_level_with_few_rows_stands_near_the_mean(tmp_path: Path) -> None:
    text_N = texts(*["low"] * 100, *["high"] * 100, "once")
    label_N = np.array([0] * 90 + [1] * 10 + [1] * 90 + [0] * 10 + [1])
    levels = ("low", "high", "once")
    planted = table(tmp_path, label_N, None, {"text": (text_N, levels)}, split_N=np.full(201, "train"))
    assert order(planted) == ("low", "once", "high")


def test_missing_values_and_levels_without_rows_have_no_place(tmp_path: Path) -> None:
    text_N = np.tile(texts("a", None), 50)
    planted = table(tmp_path, np.tile([0, 1], 50), None, {"text": (text_N, ("a", "b"))})
    assert order(planted) == ("a",)


def test_the_rows_of_the_held_out_fold_do_not_count(tmp_path: Path) -> None:
    text_N = np.tile(texts("a", "b"), 60)
    fold_N = np.repeat([0, 1], 60)
    label_N = np.where(fold_N == 0, np.tile([0, 1], 60), np.tile([1, 0], 60))
    planted = table(tmp_path, label_N, None, {"text": (text_N, ("a", "b"))}, split_N=np.full(120, "train"))
    file = planted.paths.split("train") / "part-00000.parquet"
    pq.write_table(pq.read_table(file).append_column("fold", pa.array(fold_N)), file)
    assert order(planted, fold=1) == ("a", "b")
    assert order(planted, fold=0) == ("b", "a")


def test_with_many_classes_levels_with_the_same_classes_stand_together() -> None:
    share_LC = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.7, 0.1, 0.2], [0.1, 0.7, 0.2]])
    line_L = on_a_line(share_LC, np.full(4, 100.0))
    assert abs(line_L[0] - line_L[2]) < 0.3 < abs(line_L[0] - line_L[1])
    np.testing.assert_array_equal(line_L, on_a_line(share_LC, np.full(4, 100.0)))
