"""Segments on which a model is worse: planted ones are found, and clean data names none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkgpu.score.segments import LEAST_ROWS, Grouping, Segment, by_level, by_range, judged

ROWS = 6_000
SHOPS = ("north", "south", "west")


def drawn(seed: int) -> dict[str, Any]:
    """Rows whose label follows a probability that the model knows, and features that play no part in it."""
    random = np.random.default_rng(seed)
    chance_N = random.uniform(0.05, 0.95, ROWS)
    return {
        "label_N": (random.random(ROWS) < chance_N).astype(np.int64),
        "chance_N": chance_N,
        "code_N": random.integers(-1, len(SHOPS), ROWS),
        "age_N": np.where(random.random(ROWS) < 0.1, np.nan, random.uniform(18, 80, ROWS)),
    }


def groupings(rows: dict[str, Any]) -> list[Grouping]:
    return [by_level("shop", SHOPS, rows["code_N"]), by_range("age", rows["age_N"])]


def worst(
    task: Any, label_N: Any, prediction: Any, groups: list[Grouping], weight_N: Any = None
) -> list[Segment]:
    """The segments that are worse than the other rows beyond chance, the clearest first."""
    found = judged(task, label_N, prediction, groups, weight_N=weight_N)
    return sorted((one for one in found if one.gap > 0), key=lambda one: -one.gap)


def as_classes(chance_N: Any) -> Any:
    return np.stack([1 - chance_N, chance_N], axis=1)


@pytest.mark.parametrize("segment", ["shop = south", "shop is missing", "age is missing"])
def test_a_segment_in_which_the_model_is_wrong_is_named_first(segment: str) -> None:
    rows = drawn(1)
    bad_N = {
        "shop = south": rows["code_N"] == 1,
        "shop is missing": rows["code_N"] == -1,
        "age is missing": np.isnan(rows["age_N"]),
    }[segment]
    chance_N = np.where(bad_N, 1 - rows["chance_N"], rows["chance_N"])
    found = worst("binary", rows["label_N"], as_classes(chance_N), groupings(rows))
    assert found[0].name == segment and found[0].rows == bad_N.sum()
    assert found[0].loss > 1.0 > 0.6 > found[0].loss_elsewhere and found[0].gap > 0.3


def test_a_range_of_numbers_is_named_with_its_ends() -> None:
    rows = drawn(2)
    value_N = np.random.default_rng(0).normal(size=ROWS)
    error_N = np.where(rows["age_N"] > 64, 3.0, 1.0) * np.random.default_rng(5).normal(size=ROWS)
    found = worst("regression", value_N, value_N + error_N, groupings(rows))
    (segment,) = found
    assert segment.name.startswith("age from 64") and segment.name.endswith(" on")
    assert segment.loss == pytest.approx(3.0, rel=0.1) and segment.loss_elsewhere == pytest.approx(
        1.0, rel=0.1
    )


def test_clean_data_names_a_segment_in_about_one_report_of_twenty() -> None:
    alarms = 0
    for seed in range(100):
        rows = drawn(100 + seed)
        alarms += bool(worst("binary", rows["label_N"], as_classes(rows["chance_N"]), groupings(rows)))
    assert alarms <= 12


def test_few_rows_and_rows_without_weight_are_not_judged() -> None:
    rows = drawn(3)
    bad_N = np.zeros(ROWS, dtype=bool)
    bad_N[: LEAST_ROWS - 1] = True
    code_N = np.where(bad_N, 1, 0)
    chance_N = np.where(bad_N, 1 - rows["label_N"], rows["chance_N"])
    few = [by_level("shop", SHOPS, code_N)]
    assert worst("binary", rows["label_N"], as_classes(chance_N), few) == []
    weight_N = np.ones(ROWS)
    weight_N[rows["code_N"] == 1] = 0.0
    wrong_N = np.where(rows["code_N"] == 1, 1 - rows["chance_N"], rows["chance_N"])
    named = worst("binary", rows["label_N"], as_classes(wrong_N), groupings(rows), weight_N=weight_N)
    assert named == []


def test_a_number_with_few_values_has_as_many_ranges_as_it_can() -> None:
    two = by_range("x", np.array([0.0, 0.0, 1.0, 1.0, np.nan]))
    assert list(two.names) == ["x below 1", "x from 1 on", "x is missing"]
    assert two.code_N.tolist() == [0, 0, 1, 1, 2]
    none = by_range("x", np.full(3, np.nan))
    assert none.code_N.tolist() == [0, 0, 0]
