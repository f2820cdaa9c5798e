"""The useful parts of a timestamp, and those that differ between the rows of a column."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # seconds

TIME_PARTS: dict[str, str] = {
    "year": "year({0})",
    "month": "month({0})",
    "day": "dayofmonth({0})",
    "weekday": "dayofweek({0})",
    "hour": "hour({0})",
    "minute": "minute({0})",
    "days since 1970": "floor(unix_micros({0}) / 1000000D) / 86400D",
}
"""The useful parts of a timestamp, each as SQL on a column."""


def varying_parts(ends: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """The parts of a timestamp that differ between rows.

    `ends` are the least and the greatest ``microsecond`` (since 1970), ``hour`` and ``minute`` in UTC; none
    without values. Computing each part of every row's date would take longer than all other figures together.
    """
    if "microsecond" not in ends:
        return ()
    seconds = [end // 1_000_000 for end in ends["microsecond"]]
    if seconds[0] == seconds[1]:
        return ()
    # Timestamps may lie outside the years 1 to 9999 that Python supports.
    first, last = (
        _EPOCH + timedelta(seconds=min(max(second, _FIRST_SECOND), _LAST_SECOND)) for second in seconds
    )
    varies = {
        "year": first.year != last.year,
        "month": (first.year, first.month) != (last.year, last.month),
        "day": first.date() != last.date(),
        "weekday": first.date() != last.date(),
        "hour": ends["hour"][0] != ends["hour"][1],
        "minute": ends["minute"][0] != ends["minute"][1],
        "days since 1970": True,
    }
    return tuple(part for part in TIME_PARTS if varies[part])
