"""The base of all sections of a configuration, and the kinds of values that their keys take."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Preset = Literal["fast", "balanced", "best"]
Role = Literal["numeric", "categorical", "boolean", "timestamp", "ignore"]
TreeMethod = Literal["auto", "exact", "approx", "hist", "gpu_hist"]
GrowPolicy = Literal["depthwise", "lossguide", "symmetric"]
CategoricalEncoding = Literal["one_hot_internal", "label_encoder", "sort_by_response"]
Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]
Schedule = Literal["constant", "cosine", "coslog4"]
NumberEmbedding = Literal["piecewise", "cosine"]

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


class Section(BaseModel):
    """Base of the sections: immutable; refuses unknown keys and values of a wrong type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
