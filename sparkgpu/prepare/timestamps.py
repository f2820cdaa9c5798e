"""The useful parts of a timestamp, and those that differ between the rows of a column."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

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


def varying_parts(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a timestamp that differ between rows, from its extremes.

    The extremes are ``least microsecond`` (since 1970), ``greatest hour`` and so on, in UTC; none without
    values. Computing each part of every row's date would take longer than all other figures together.
    """
    if found.get("least microsecond") is None:
        return ()
    seconds = [found[f"{end} microsecond"] // 1_000_000 for end in ("least", "greatest")]
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
        "hour": found["least hour"] != found["greatest hour"],
        "minute": found["least minute"] != found["greatest minute"],
        "days since 1970": True,
    }
    return tuple(part for part in TIME_PARTS if varies[part])
