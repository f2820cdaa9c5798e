"""The inputs of an exported file: one for each feature, words as strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from sparkgpu.core.table.schema import OTHER_LEVEL, Feature

NumberT = TypeVar("NumberT", int, float)


def input_name(feature: Feature) -> str:
    """The user's column, or the name in the run's table of a feature made from one."""
    return feature.name if feature.part else feature.source


def words_of(
    feature: Feature, number: Mapping[str, NumberT], missing: NumberT
) -> tuple[list[str], list[NumberT], NumberT]:
    """The words of a category with their numbers, and the number of any other word.

    An empty word is a missing value, unless it is a level.
    """
    other = number.get(OTHER_LEVEL, missing) if OTHER_LEVEL in feature.levels else missing
    keys = list(feature.levels)
    found: list[NumberT] = [number.get(level, missing) for level in keys]
    if "" not in keys:
        keys.append("")
        found.append(missing)
    return keys, found, other
