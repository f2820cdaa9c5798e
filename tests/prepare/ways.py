"""Who prepares a table in a test: Arrow, or Spark in either of its ways (`prepare` in conftest.py)."""

from __future__ import annotations

from typing import Any

import pytest

_SPARK = ("spark", "held")
WAYS = ["arrow", *(pytest.param(by, marks=pytest.mark.spark) for by in _SPARK)]


def by_ways(*cases: tuple[Any, ...]) -> list[Any]:
    """Every case with Arrow as the last value, the last case with Spark too; with ``--slow`` all of them."""
    found = [pytest.param(*case, "arrow") for case in cases]
    for case in cases:
        marks = [pytest.mark.spark, *([] if case == cases[-1] else [pytest.mark.slow])]
        found += [pytest.param(*case, by, marks=marks) for by in _SPARK]
    return found
