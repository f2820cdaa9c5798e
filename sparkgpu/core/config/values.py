"""The base of all sections of a configuration, and the kinds of values that their keys take."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Preset = Literal["fast", "balanced", "best"]
Role = Literal["numeric", "categorical", "boolean", "timestamp", "text", "ignore"]
TreeMethod = Literal["auto", "exact", "approx", "hist", "gpu_hist"]
GrowPolicy = Literal["depthwise", "lossguide", "symmetric"]
CategoricalEncoding = Literal["one_hot_internal", "label_encoder", "sort_by_response"]
Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]
Schedule = Literal["constant", "cosine", "coslog4"]
NumberEmbedding = Literal["piecewise", "cosine"]
Distribution = Literal["gaussian", "lognormal", "poisson", "gamma", "tweedie"]
CheckName = Literal[
    "leak", "drift", "repeated_rows", "overfitting", "underfitting", "calibration", "group_gap"
]
"""The checks of a run (`sparkgpu.runs.checks`)."""

POWERS = {"gaussian": 0.0, "poisson": 1.0, "tweedie": 1.5, "gamma": 2.0}
"""The power of its mean with which a target's variance grows (Jørgensen, JRSS B 49, 1987)."""

MAX_DELTA_STEP = 0.7
"""A leaf changes the logarithm of a mean by at most this, times the learning rate.

It is XGBoost's default for poisson; without it a step to a much larger or smaller mean goes far beyond it.
"""

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?=\d)(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s?)?")


def _seconds(value: Any) -> Any:
    """Seconds, from a number or from words such as ``90s``, ``10m`` or ``1h30m``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip().lower().replace(" ", ""))
    if not found:
        raise ValueError('give a time such as "90s", "10m" or "1h30m"')
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * (24 * days + hours) + 60 * minutes + seconds


Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0.0)]


def _separator(value: str) -> str:
    if not re.fullmatch(r"[\x01-\x7f]", value) or value in '"\r\n':
        raise ValueError("give one ASCII character such as ;")
    return value


def _encoding(value: str) -> str:
    try:
        "a".encode(value)
    except (LookupError, UnicodeError):
        raise ValueError(
            "no encoding of text has this name in Python; give one such as latin-1 or cp1252"
        ) from None
    return value


_SOME_DAY = datetime(2024, 12, 31, 13, 45)


def _date_format(value: str) -> str:
    directives = set(re.findall("%(.?)", value))
    day = _SOME_DAY.strftime(value)
    if not directives <= set("dmyYbBHIMSp%") or _day_of(day, value) != _SOME_DAY.date():
        raise ValueError(
            "give day, month and year as in %d.%m.%Y or %m/%d/%Y %I:%M %p, by %d, %m, %b, %B, %y, %Y, %H, "
            "%I, %M, %S and %p"
        )
    if re.fullmatch("[0-9]+[.,]?[0-9]*", day):
        raise ValueError("a column of such dates is one of numbers; separate day, month and year")
    return value


def _day_of(text: str, date_format: str) -> date | None:
    try:
        return datetime.strptime(text, date_format).date()
    except ValueError:
        return None


Separator = Annotated[str, AfterValidator(_separator)]
DateFormat = Annotated[str, AfterValidator(_date_format)]
Encoding = Annotated[str, AfterValidator(_encoding)]


class Section(BaseModel):
    """Base of the sections: immutable; refuses unknown keys and values of a wrong type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
