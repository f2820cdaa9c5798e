"""The values of one of the user's columns, by pyarrow and as Spark reads them: numbers, texts, timestamps.

A column may come in any type that holds such values; what is none becomes null. No pyspark.

N rows, L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkgpu.core.table.rows import as_numpy
from sparkgpu.prepare.columns import UNITS_OF_A_SECOND, WHOLE_TYPES, WORDS, is_number, is_span, spark_type

MISSING_TEXTS = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "?", "-")
"""Texts that stand for a missing number or timestamp; a category of a format with types keeps them."""

BLANKS = "".join(map(chr, range(0x21)))
"""The blanks that Java, and so Spark, ignores around a number."""

FINITE_NUMBER = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"

NUMBER = rf"{FINITE_NUMBER}|[+-]?(?i:inf|infinity)|(?i:nan)"
"""What may stand in a column of numbers; it must match the whole text without its blanks."""

TIMESTAMP = (
    r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}"
    r"(:[0-9]{2}([.][0-9]{1,9})?(Z|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)?)?)?"
)
"""A date or timestamp of ISO 8601 that both Spark and pyarrow can read; without a zone it is in UTC."""

ISO_TIMESTAMP = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?)?"
    r"(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?"
)
"""All that pyarrow reads: a column of CSV that it took for timestamps comes as text in new rows."""

LEADING_ZERO = r"^[+-]?0[0-9]"
"""A beginning that only codes have; people do not write numbers like this."""

_WHOLE_NUMBER = r"^[+-]?[0-9]{1,18}$"
_ZONE = r"[ T][0-9:.]+(Z|[+-][0-9:]+)$"
_FINER = r"([.][0-9]{6})[0-9]+"
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_TIMESTAMP_TYPE = pa.timestamp("us")


class UnfitError(Exception):
    """A column's type holds nothing that the feature can be read from; the message names the type."""


def text_array(texts: Sequence[str]) -> pa.Array:
    """Texts without a null. pyarrow's own `array` loads pandas, which a first prediction would wait for."""
    encoded = [text.encode("utf-8") for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(encoded))
    )


def numbers(column: pa.Array) -> pa.Array:
    """A column as numbers; null for what is none."""
    column = decoded(column)
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return column
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if is_text(kind):
        text = pc.utf8_trim(column.cast(pa.string()), BLANKS)
        is_number = pc.match_substring_regex(text, f"^({FINITE_NUMBER})$")
        return pc.utf8_ltrim(pc.if_else(is_number, text, None), "+").cast(pa.float64(), safe=False)
    raise UnfitError(str(kind))


def as_texts(column: pa.Array, kind: str) -> pa.Array:
    """A column as texts in Spark's spelling, which of a source of type `kind` became the levels.

    Of a list of words, a text is all its words.
    """
    column = decoded(column)
    if spark_type(column.type) == WORDS:
        column = column.cast(pa.list_(pa.string()))
        words = pa.ListArray.from_arrays(column.offsets, column.values.fill_null(""))
        return pc.binary_join(words, " ")
    if is_text(column.type):
        return column.cast(pa.string())
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.string())
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, "true", "false")
    if pa.types.is_floating(column.type):
        return _float_texts(numbers(column), kind)
    if pa.types.is_timestamp(column.type):
        return pc.replace_substring_regex(
            pc.strftime(timestamps(column), format="%Y-%m-%d %H:%M:%S"), r"[.]?0+$", ""
        )
    if _is_plain(column.type):
        return column.cast(pa.string())
    raise UnfitError(str(column.type))


def _float_texts(column: pa.Array, kind: str) -> pa.Array:
    """Whole numbers without a point, unless the source had floats."""
    if kind in ("float", "double"):
        return pc.if_else(pc.is_finite(column), pc.add(column, pa.scalar(0, column.type)), None).cast(
            pa.string()
        )
    number_N = column.cast(pa.float64(), safe=False)
    is_whole = pc.and_(pc.equal(number_N, pc.floor(number_N)), pc.less(pc.abs(number_N), 2.0**53))
    whole = pc.if_else(is_whole, number_N, None).cast(pa.int64()).cast(pa.string())
    return pc.if_else(
        pc.is_valid(whole), whole, pc.if_else(pc.is_nan(number_N), None, number_N.cast("string"))
    )


def comparable(column: pa.Array, kind: str) -> pa.Array:
    """A column, or the texts of its levels, in a form in which equal values are equal."""
    if kind in WHOLE_TYPES:
        return _whole(column)
    if kind == "float":
        single = numbers(column).cast(pa.float64(), safe=False).cast(pa.float32(), safe=False)
        return pc.add(single, pa.scalar(0, pa.float32()))  # -0 becomes 0
    if is_number(kind):
        return pc.add(numbers(column).cast(pa.float64(), safe=False), 0.0)
    if kind == "boolean":
        return booleans(column)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return timestamps(column).view(pa.int64())
    return as_texts(column, kind)


def _whole(column: pa.Array) -> pa.Array:
    """Whole numbers to their last digit; null for what is none."""
    column = decoded(column)
    if is_text(column.type):
        text = pc.utf8_trim(column.cast(pa.string()), BLANKS)
        is_whole = pc.match_substring_regex(text, _WHOLE_NUMBER)
        exact = pc.utf8_ltrim(pc.if_else(is_whole, text, None), "+").cast(pa.int64())
        return pc.coalesce(exact, _whole(numbers(column)))
    found = numbers(column)
    if not pa.types.is_floating(found.type):
        return found.cast(pa.int64(), safe=False)
    fits = pc.and_(pc.equal(found, pc.floor(found)), pc.less(pc.abs(found), 2.0**63))
    return pc.if_else(fits, found, None).cast(pa.int64())


def booleans(column: pa.Array) -> pa.Array:
    """1 for true, 0 for false, as Spark casts."""
    column = decoded(column)
    if is_text(column.type):
        text = pc.utf8_lower(pc.utf8_trim(column.cast(pa.string()), BLANKS))
        is_true = pc.is_in(text, value_set=pa.array(_TRUE))
        is_false = pc.is_in(text, value_set=pa.array(_FALSE))
        return pc.if_else(is_true, 1, pc.if_else(is_false, 0, None)).cast(pa.int8())
    found = numbers(column)
    return pc.not_equal(found, 0).cast(pa.int8()) if not pa.types.is_boolean(column.type) else found


def timestamps(column: pa.Array, form: str = TIMESTAMP) -> pa.Array:
    """Timestamps in microseconds, in UTC without a zone; numbers are seconds since 1970, texts of `form`."""
    column = decoded(column)
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64()).view(_TIMESTAMP_TYPE)
    if pa.types.is_date(kind):
        return column.cast(_TIMESTAMP_TYPE)
    if is_text(kind):
        return _text_timestamps(column.cast(pa.string()), form)
    if pa.types.is_null(kind):
        return column.cast(_TIMESTAMP_TYPE)
    if is_plain_number(kind):
        seconds_N = numbers(column).cast(pa.float64(), safe=False)
        micros_N = pc.if_else(pc.is_finite(seconds_N), pc.trunc(pc.multiply(seconds_N, 1e6)), None)
        return micros_N.cast(pa.int64(), safe=False).view(_TIMESTAMP_TYPE)
    raise UnfitError(str(kind))


def _text_timestamps(text: pa.Array, form: str) -> pa.Array:
    text = pc.utf8_trim(text, BLANKS)
    text = pc.if_else(pc.match_substring_regex(text, f"^({form})$"), text, None)
    text = pc.replace_substring_regex(text, _FINER, r"\1")
    is_zoned = pc.match_substring_regex(text, _ZONE)
    try:
        zoned = pc.if_else(is_zoned, text, None).cast(pa.timestamp("us", "UTC")).view(pa.int64())
        plain = pc.if_else(is_zoned, None, text).cast(_TIMESTAMP_TYPE).view(pa.int64())
        return pc.coalesce(zoned, plain).view(_TIMESTAMP_TYPE)
    except pa.ArrowInvalid:  # such as the 30th of February
        return pa.array([_text_timestamp(one) for one in text.to_pylist()], pa.int64()).view(_TIMESTAMP_TYPE)


def _text_timestamp(text: str | None) -> int | None:
    """Microseconds since 1970; None for no timestamp."""
    try:
        timestamp = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    timestamp = timestamp.replace(tzinfo=timestamp.tzinfo or UTC)
    return round((timestamp - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)


def as_float64(column: pa.Array) -> NDArray[np.float64]:
    """Numbers as float64, NaN for null."""
    return as_numpy(column.cast(pa.float64(), safe=False).fill_null(float("nan")))


def labels_of(column: pa.Array, classes: Sequence[str], kind: str) -> NDArray[Any]:
    """The labels (N,) in a column of targets: class codes, -1 for none, or values, NaN for none.

    `kind` is the target's type in Spark's spelling. Raises `UnfitError`.
    """
    if not classes:
        return as_float64(numbers(column))
    found = pc.index_in(
        comparable(column, kind), value_set=comparable(text_array(classes), kind), skip_nulls=True
    )
    return as_numpy(found.fill_null(-1)).astype(np.int64)


def num_unreadable(texts: pa.Array, found: pa.Array) -> int:
    """The texts without a value that are no mark of a missing one; 0 if the column holds no texts."""
    if not is_text(texts.type):
        return 0
    is_lost = pc.and_(texts.is_valid(), found.is_null())
    lost = pc.utf8_trim(decoded(texts).cast(pa.string()).filter(is_lost), BLANKS)
    return len(lost) - int(pc.sum(pc.is_in(lost, value_set=pa.array(MISSING_TEXTS))).as_py() or 0)


def is_plain_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_null(kind)
    )


def decoded(column: pa.Array) -> pa.Array:
    """The column without a dictionary; durations and times of day as seconds."""
    if pa.types.is_dictionary(column.type):
        return decoded(column.dictionary_decode())
    if is_span(column.type):
        stored = column.view(pa.int32() if pa.types.is_time32(column.type) else pa.int64())
        return pc.divide(stored.cast(pa.float64(), safe=False), float(UNITS_OF_A_SECOND[column.type.unit]))
    return column
