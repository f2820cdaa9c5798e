"""The useful parts of a timestamp, by SQL and by pyarrow, and which of them differ between rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SECONDS_PER_DAY = 86_400


class TimePart(NamedTuple):
    """A part of a timestamp: as SQL on a column, and as a function of microseconds since 1970."""

    sql: str
    of: Callable[[pa.Array], pa.Array]


def _weekday(timestamp_N: pa.Array) -> pa.Array:
    return pc.day_of_week(timestamp_N, count_from_zero=False, week_start=7)  # from Sunday on, as in Spark


def _days(timestamp_N: pa.Array) -> pa.Array:
    second_N = pc.floor(pc.divide(timestamp_N.view(pa.int64()).cast(pa.float64(), safe=False), 1e6))
    return pc.divide(second_N, float(_SECONDS_PER_DAY))


TIME_PARTS = {
    "year": TimePart("year({0})", pc.year),
    "month": TimePart("month({0})", pc.month),
    "day": TimePart("dayofmonth({0})", pc.day),
    "weekday": TimePart("dayofweek({0})", _weekday),
    "hour": TimePart("hour({0})", pc.hour),
    "minute": TimePart("minute({0})", pc.minute),
    "days since 1970": TimePart(f"floor(unix_micros({{0}}) / 1000000D) / {_SECONDS_PER_DAY}D", _days),
}


def varying_parts(ends: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """The parts of a timestamp that differ between rows.

    `ends` are the least and the greatest ``microsecond`` (since 1970), ``hour`` and ``minute`` in UTC; none
    without values. Computing each part of every row's date would take longer than all other figures together.
    """
    if "microsecond" not in ends:
        return ()
    first, last = (np.datetime64(end // 1_000_000, "s") for end in ends["microsecond"])

    def differ(unit: str) -> bool:
        return bool(first.astype(f"datetime64[{unit}]") != last.astype(f"datetime64[{unit}]"))

    varies = {
        "year": differ("Y"),
        "month": differ("M"),
        "day": differ("D"),
        "weekday": differ("D"),
        "hour": ends["hour"][0] != ends["hour"][1],
        "minute": ends["minute"][0] != ends["minute"][1],
        "days since 1970": differ("s"),
    }
    return tuple(part for part in TIME_PARTS if varies[part])
