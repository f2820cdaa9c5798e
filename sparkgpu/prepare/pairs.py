"""Latitude and longitude as a pair: their sum and their difference are features as well.

Trees cut along one column at a time, so they see a coast that runs askew as many small steps; turned by an
eighth of a circle, it is one cut (benchmarks/results/2026-11-25-pairs.md). Both features are 32-bit sums of
two others of the table: whoever changes those calls `fill_pairs`, and Spark's pipeline gives the same digits.

N rows, F numeric features.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.table.schema import TableSchema

_LATITUDE, _LONGITUDE = (
    re.compile(rf"(.*){whole}(.*)|(|.*[^a-z])(?:{short})(|[^a-z].*)")
    for whole, short in (("latitude", "lat"), ("longitude", "long|lon|lng"))
)


def coordinates(columns: Sequence[str]) -> list[tuple[str, str]]:
    """The latitudes among these columns, each with the longitude that has the rest of its name."""
    longitude_of = {rest: name for name in columns if (rest := _rest(_LONGITUDE, name)) is not None}
    rests = ((name, _rest(_LATITUDE, name)) for name in columns)
    return [(name, longitude_of[rest]) for name, rest in rests if rest in longitude_of]


def _rest(word: re.Pattern[str], column: str) -> tuple[str, ...] | None:
    found = word.fullmatch(column.casefold())
    return found and tuple(group for group in found.groups() if group is not None)


def fill_pairs(schema: TableSchema, numeric_NF: NDArray[np.float32]) -> None:
    """Make the features of pairs from those that they are of, in place."""
    place_of = {feature.name: place for place, feature in enumerate(schema.numeric)}
    for feature in schema.numeric:
        if feature.pair:
            first_N, second_N = (numeric_NF[:, place_of[name]] for name in feature.pair)
            made_N = first_N + second_N if feature.reading == "sum" else first_N - second_N
            numeric_NF[:, place_of[feature.name]] = made_N
