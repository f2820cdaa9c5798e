"""The types that Spark infers for texts of a CSV file, where they are certain, and the texts in these types.

Spark looks at one text after the other and widens a column's type, so a type may depend on the order of the
rows. It is certain where a single text already makes the column words, or where all texts are plain numbers,
truths, dates or moments of one kind. All other columns are unclear, and left to Spark.

N rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Set
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Seen = Literal["int", "bigint", "number", "double", "boolean", "date", "timestamp", "word", "unclear"]
"""What texts of a column showed: all of some rows were one of these.

Whole numbers of 32 and of 64 bits; other plain numbers, of which one or more surely make the column double;
one or more words that Spark reads as nothing else.
"""

ARROW_TYPES: dict[str, pa.DataType] = {
    "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string(),
}  # fmt: skip

_NUMBERS: Set[Seen] = frozenset({"int", "bigint", "number", "double"})
_FITTING: dict[str, Set[Seen]] = {
    "int": {"int"}, "bigint": {"int", "bigint"}, "double": _NUMBERS, "boolean": {"boolean"},
    "date": {"date"}, "timestamp": {"timestamp"},
    "string": {*_NUMBERS, "boolean", "date", "timestamp", "word", "unclear"},
}  # fmt: skip

_BLANK = r"[\x00-\x20\x7f]*"
_NO_WORD = (
    # whatever Java takes for a number, with digits of any script and in base 16
    rf"^{_BLANK}[+-]?([\p{{Nd}}.]+([eE][+-]?\p{{Nd}}+)?|0[xX][0-9a-fA-F.]+[pP][+-]?[0-9]+|NaN|Inf|Infinity)"
    rf"[dDfF]?{_BLANK}$"
    # what may begin like a date, a moment or a time of day
    rf"|^{_BLANK}[+-]?[0-9]{{4,7}}-[0-9]{{1,2}}({_BLANK}$|-[0-9])"
    rf"|^{_BLANK}T?[0-9]{{1,2}}(:|{_BLANK}$)"
    rf"|^{_BLANK}(?i:true|false){_BLANK}$"
)
"""Texts that some parser of Spark may accept, and some more; it takes all others for words."""
_NUMBER = r"^([ \t]*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?[ \t]*|NaN|-?Inf|-?Infinity)$"
_SURELY_DOUBLE = r"[.][0-9]+$|[eE]-0*[1-9][0-9]*$|^NaN$|Inf|^[ \t]|[ \t]$"
"""Numbers with digits after the point or blanks; others may be decimals, such as ``5.`` and ``5e0``."""

_MOMENT = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?"
_ZONE = r"(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])"
_FIRST_DAY = datetime.date(1900, 1, 1)
"""Before it, Spark may count days and zones by other rules in Parquet."""
_FIRST_MOMENT = datetime.datetime(1900, 1, 2, tzinfo=datetime.UTC)
_SAMPLE = 100
_INT = 2**31


def type_of(seen: Set[Seen]) -> str | None:
    """Spark's type of a column whose texts showed all of this; None if it is not certain."""
    if not seen or "word" in seen:
        return "string"
    for kind in ("int", "bigint", "boolean", "date", "timestamp"):
        if seen <= _FITTING[kind]:
            return kind
    return "double" if "double" in seen and seen <= _NUMBERS else None


def fits(seen: Set[Seen], kind: str) -> bool:
    """Whether texts that showed this are values of a column of type `kind`."""
    return seen <= _FITTING[kind]


def look_at(text_N: pa.Array) -> frozenset[Seen]:
    """What some rows of a column show; nothing, if all are null."""
    if text_N.null_count == len(text_N):
        return frozenset()
    if _holds_word(text_N[:_SAMPLE]):
        return frozenset({"word"})
    if (whole := _whole(text_N)) is not None:
        return whole
    if _all(text_N, _NUMBER):
        surely = pc.any(pc.match_substring_regex(text_N, _SURELY_DOUBLE)).as_py()
        return frozenset({"double" if surely else "number"})
    for kind in ("boolean", "date", "timestamp"):
        if as_type(text_N, kind) is not None:
            return frozenset({kind})
    return frozenset({"word" if _holds_word(text_N) else "unclear"})


def as_type(text_N: pa.Array, kind: str) -> pa.Array | None:
    """Texts that fit `kind` as its values; None if one of them is not plainly one."""
    if kind == "string":
        return text_N
    try:
        if kind == "boolean":
            lower_N = pc.ascii_lower(text_N)
            is_true_N = pc.equal(lower_N, "true")
            is_truth_N = pc.or_(is_true_N, pc.equal(lower_N, "false"))
            return None if pc.all(is_truth_N).as_py() is False else is_true_N
        if kind == "date":
            return _not_before(text_N.cast(pa.date32()), _FIRST_DAY)
        if kind == "timestamp":
            return _moments(text_N)
        if kind == "double":
            text_N = pc.utf8_trim(text_N, " \t")
        return text_N.cast(ARROW_TYPES[kind])
    except pa.ArrowInvalid:
        return None


def _moments(text_N: pa.Array) -> pa.Array | None:
    """Moments with a zone, or all of them without one, which are in UTC."""
    if _all(text_N, _MOMENT + "$"):
        moment_N = text_N.cast(pa.timestamp("us")).cast(pa.int64()).cast(ARROW_TYPES["timestamp"])
    elif _all(text_N, _MOMENT + _ZONE + "$"):
        moment_N = text_N.cast(ARROW_TYPES["timestamp"])
    else:
        return None
    return _not_before(moment_N, _FIRST_MOMENT)


def _not_before(value_N: pa.Array, first: datetime.date) -> pa.Array | None:
    is_before_N = pc.less(value_N, pa.scalar(first, value_N.type))
    return None if pc.any(is_before_N).as_py() else value_N


def _whole(text_N: pa.Array) -> frozenset[Seen] | None:
    """How large whole numbers are; None if one of the texts is not plainly one of 64 bits."""
    _, offsets, data = text_N.buffers()
    offset_N = np.frombuffer(offsets, np.int32)[text_N.offset : text_N.offset + len(text_N) + 1]
    byte_B = np.frombuffer(data, np.uint8)[offset_N[0] : offset_N[-1]]
    if not (((byte_B >= ord("0")) & (byte_B <= ord("9"))) | (byte_B == ord("-"))).all():
        return None
    try:
        found = pc.min_max(text_N.cast(pa.int64()))
    except pa.ArrowInvalid:
        return None
    return frozenset({"int" if found["min"].as_py() >= -_INT and found["max"].as_py() < _INT else "bigint"})


def _holds_word(text_N: pa.Array) -> bool:
    return pc.all(pc.match_substring_regex(text_N, _NO_WORD)).as_py() is False


def _all(text_N: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(text_N, pattern)).as_py() is not False
