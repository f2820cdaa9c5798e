"""The useful parts of a moment, and those that differ between the rows of a column."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800, 253_402_300_799  # seconds

TIME_PARTS: dict[str, str] = {
    "year": "year({0})",
    "month": "month({0})",
    "day": "dayofmonth({0})",
    "weekday": "dayofweek({0})",
    "hour": "hour({0})",
    "minute": "minute({0})",
    "days since 1970": "unix_timestamp({0}) / 86400D",
}
"""The useful parts of a timestamp, each as SQL on a column."""


def moment_figures(column: str) -> dict[str, str]:
    """The aggregates of a column of moments for `varying_parts`, by the name of the figure."""
    seconds = f"unix_timestamp({column})"
    found = {}
    for figure, sql in (
        ("moment", seconds),
        ("in day", f"pmod({seconds}, 86400)"),
        ("in hour", f"pmod({seconds}, 3600)"),
    ):
        found[f"least {figure}"], found[f"greatest {figure}"] = f"min({sql})", f"max({sql})"
    return found


def varying_parts(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a timestamp that differ between rows, from its extremes.

    The extremes are ``least moment``, ``greatest in day`` and so on, in seconds and UTC; none without values.
    Computing each part of every row's date would take longer than all other figures together.
    """
    if found.get("least moment") is None or found["least moment"] == found["greatest moment"]:
        return ()
    # Spark's moments may lie outside the years 1 to 9999 that Python supports.
    first, last = (
        _EPOCH + timedelta(seconds=min(max(found[f"{end} moment"], _FIRST_MOMENT), _LAST_MOMENT))
        for end in ("least", "greatest")
    )
    in_day = [found[f"{end} in day"] // 3600 for end in ("least", "greatest")]
    in_hour = [found[f"{end} in hour"] // 60 for end in ("least", "greatest")]
    varies = {
        "year": first.year != last.year,
        "month": (first.year, first.month) != (last.year, last.month),
        "day": first.date() != last.date(),
        "weekday": first.date() != last.date(),
        "hour": in_day[0] != in_day[1],
        "minute": in_hour[0] != in_hour[1],
        "days since 1970": True,
    }
    return tuple(part for part in TIME_PARTS if varies[part])
