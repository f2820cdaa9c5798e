"""Levels of categories stand in the order of the labels of their training rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from planted_trees import Table, table

from sparkgpu.core.table.schema import Feature
from sparkgpu.trees.level_order import on_a_line, ordered_levels


def order(planted: Table, fold: int | None = None) -> tuple[str, ...]:
    (feature,) = planted.schema.features
    codes = ordered_levels(planted.paths.split("train"), planted.schema, fold)[feature.name]
    return tuple(feature.levels[code] for code in codes)


RARE = tuple(f"rare {number}" for number in range(8))
OFTEN = {"low": [0] * 90 + [1] * 10, "high": [1] * 90 + [0] * 10}


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({"a": [2.0] * 50, "b": [3.0] * 50, "c": [1.0] * 50}, ("c", "a", "b")),
        # Rare levels stand together whatever their labels are, and one alone stands near the mean.
        (OFTEN | {text: [place % 2] * 2 for place, text in enumerate(RARE)}, ("low", *RARE, "high")),
        (OFTEN | {"once": [1]}, ("low", "once", "high")),
        # Missing values and levels without rows have no place.
        ({"a": [0] * 50, None: [1] * 50, "b": []}, ("a",)),
    ],
)
def test_levels_stand_by_their_mean_label(
    tmp_path: Path, labels: dict[str | None, list[float]], found: tuple[str, ...]
) -> None:
    text_N = np.array([text for text, own in labels.items() for _ in own], dtype=object)
    label_N = np.array([label for own in labels.values() for label in own])
    levels = tuple(text for text in labels if text is not None)
    split_N = np.full(len(label_N), "train")
    assert order(table(tmp_path, label_N, None, {"text": (text_N, levels)}, split_N=split_N)) == found


def test_the_rows_of_the_held_out_fold_do_not_count(tmp_path: Path) -> None:
    text_N, fold_N = np.tile(np.array(["a", "b"], dtype=object), 60), np.repeat([0, 1], 60)
    label_N = np.where(fold_N == 0, np.tile([0, 1], 60), np.tile([1, 0], 60))
    train_N = np.full(120, "train")
    planted = table(tmp_path, label_N, None, {"text": (text_N, ("a", "b"))}, split_N=train_N, fold_N=fold_N)
    assert (order(planted, fold=1), order(planted, fold=0)) == (("a", "b"), ("b", "a"))


def test_levels_with_mean_targets_keep_the_order_of_their_codes(tmp_path: Path) -> None:
    text_N = np.repeat(np.array(["a", "b"], dtype=object), 50)
    planted = table(tmp_path, np.repeat([1, 0], 50), None, {"text": (text_N, ("a", "b"))})
    (text,) = planted.schema.features
    mean = Feature(name="m", source="text", part="mean target", kind="numeric", pipeline="m", means_of="text")
    schema = planted.schema.model_copy(update={"features": (text, mean)})
    found = ordered_levels(planted.paths.split("train"), schema, None)
    assert (order(planted), found["text"]) == (("b", "a"), (0, 1))


def test_with_many_classes_levels_with_the_same_classes_stand_together() -> None:
    share_LC = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.7, 0.1, 0.2], [0.1, 0.7, 0.2]])
    line_L = on_a_line(share_LC, np.full(4, 100.0))
    assert abs(line_L[0] - line_L[2]) < 0.3 < abs(line_L[0] - line_L[1])
    np.testing.assert_array_equal(line_L, on_a_line(share_LC, np.full(4, 100.0)))
