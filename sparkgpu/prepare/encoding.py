"""The user's columns as features, by pyarrow: the values that the Spark pipeline of the run gives.

For rows that come after training. A column may come in another type that holds the same values: numbers as
text, whole numbers as floats, dictionaries, moments in any unit. A category that training never saw counts as
missing (or as one of the rarer ones, where these became one level), and so does a text that is no number in a
column of numbers; both are counted. No pyspark.

N rows, F numeric features, K categorical features, L levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkgpu.errors import DataError
from sparkgpu.prepare.level_means import LevelMeans
from sparkgpu.prepare.roles import WHOLE_TYPES, is_number
from sparkgpu.prepare.texts import BLANKS, MISSING_MARKS, MOMENT
from sparkgpu.table.rows import Rows, as_float32, as_numpy
from sparkgpu.table.schema import OTHER_LEVEL, Feature, TableSchema
from sparkgpu.words import listed, nearest

_PLAIN_NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_WHOLE_NUMBER = r"^[+-]?[0-9]{1,18}$"
_ZONE = r":[0-9]{2}([.][0-9]+)?(Z|[+-][0-9:]+)$"
_FINER = r"([.][0-9]{6})[0-9]+"
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_MOMENT_TYPE = pa.timestamp("us")
_SECONDS_PER_DAY = 86_400.0


class _UnfitError(Exception):
    """A column's type holds nothing that the feature can be read from; the message names the type."""


@dataclass(kw_only=True)
class Findings:
    """What was unusual in the rows so far, in values by column; `values` counts all that are not null."""

    values: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    too_large: Counter[str] = field(default_factory=Counter)

    def sentences(self) -> list[str]:
        """One for each kind, for the user."""
        found = []
        for counts, what in (
            (self.unknown, "that training never saw"),
            (self.unreadable, "that cannot be read"),
            (self.too_large, "that are infinite or beyond 3.4e38"),
        ):
            if counts:
                columns = listed(
                    f"{name!r} ({number:,} of {self.values[name]:,})" for name, number in counts.most_common()
                )
                found.append(f"values {what} count as missing: {columns}")
        return found


class Encoder:
    """Makes the rows of a table from the user's columns.

    `means` are the mean targets by the name of the feature whose levels they belong to.
    """

    def __init__(self, schema: TableSchema, means: Mapping[str, LevelMeans]) -> None:
        """Raises `DataError` if an earlier version prepared the table."""
        if any(feature.reading is None for feature in schema.features if feature.means_of is None):
            raise DataError(
                "an earlier version of sparkgpu made this run and did not keep how its columns were read. "
                "Run it again."
            )
        self._schema = schema
        self._means = means
        self._columns = tuple(dict.fromkeys(feature.source for feature in schema.features))
        self._levels = {feature.name: _Levels(feature) for feature in schema.categorical}
        self.findings = Findings()

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that the features come from."""
        return self._columns

    def check(self, names: Sequence[str], where: str) -> None:
        """Raise `DataError` if a column is absent, or there twice."""
        absent = [name for name in self._columns if name not in names]
        if absent:
            hint = nearest(absent[0], names) if len(absent) == 1 else ""
            raise DataError(
                f"{where}: the model needs {'column' if len(absent) == 1 else 'columns'} "
                f"{listed(map(repr, absent))}, which it does not have.{hint} Its columns: {listed(names)}."
            )
        twice = [name for name in self._columns if list(names).count(name) > 1]
        if twice:
            raise DataError(f"{where}: duplicate column names: {listed(twice)}. Give each column one name.")

    def rows(self, batch: pa.RecordBatch | pa.Table, *, first: int = 0) -> Rows:
        """The rows of a batch with the columns of `check`; their ids count on from `first`, labels are 0.

        Raises `DataError` if a column has a type that cannot be read.
        """
        size = batch.num_rows
        numeric_NF = np.empty((size, len(self._schema.numeric)), dtype=np.float32)
        codes_NK = np.empty((size, len(self._schema.categorical)), dtype=np.int32)
        column_of = {name: _plain(batch.column(name)) for name in self._columns}
        self.findings.values.update({name: size - column.null_count for name, column in column_of.items()})
        moment_of: dict[str, pa.Array] = {}
        for place, feature in enumerate(self._schema.numeric):
            if feature.means_of is not None:
                continue
            column = column_of[feature.source]
            with_error = _Reader(self, feature)
            if feature.reading == "moment":
                if feature.source not in moment_of:
                    moment_of[feature.source] = with_error(moments, column)
                values = part_of(moment_of[feature.source], feature.part)
            else:
                values = with_error(truths if feature.reading == "truth" else numbers, column)
            value_N = as_float32(values)
            if too_large := int(np.isinf(value_N).sum()):
                self.findings.too_large[feature.source] += too_large
                value_N = np.where(np.isinf(value_N), np.float32("nan"), value_N)
            numeric_NF[:, place] = value_N
        for place, feature in enumerate(self._schema.categorical):
            column = column_of[feature.source]
            codes_N, unknown = _Reader(self, feature)(self._levels[feature.name].codes, column, counts=False)
            codes_NK[:, place] = codes_N
            if unknown:
                self.findings.unknown[feature.source] += unknown
        self._add_means(column_of, numeric_NF)
        return Rows(
            row_id_N=np.arange(first, first + size, dtype=np.int64),
            label_N=np.zeros(size, dtype=np.int64 if self._schema.classes else np.float64),
            weight_N=None,
            numeric_NF=numeric_NF,
            codes_NK=codes_NK,
        )

    def _add_means(self, column_of: Mapping[str, pa.Array], numeric_NF: NDArray[np.float32]) -> None:
        place_of = {feature.name: place for place, feature in enumerate(self._schema.numeric)}
        by_name = {feature.name: feature for feature in self._schema.categorical}
        for name, means in self._means.items():
            feature = by_name[name]
            words = _Reader(self, feature)(as_words, column_of[feature.source], feature.type, counts=False)
            nowhere_N = np.full(len(words), -1, dtype=np.int64)
            for made, values in means.columns(words, nowhere_N).items():
                numeric_NF[:, place_of[made]] = as_numpy(values)


def labels(column: pa.Array | pa.ChunkedArray, schema: TableSchema) -> NDArray[Any]:
    """The labels in a column of targets: class codes, -1 for none, or values, NaN for none.

    Raises `DataError` if the column has a type that cannot be read.
    """
    column = _plain(column)
    try:
        if not schema.classes:
            return as_float64(numbers(column))
        kind = schema.target_type or "string"
        known = _comparable(_text_array(schema.classes), kind)
        found = pc.index_in(_comparable(column, kind), value_set=known, skip_nulls=True)
        return as_numpy(found.fill_null(-1)).astype(np.int64)
    except _UnfitError as error:
        raise DataError(
            f"the target {schema.target!r} is of type {error}, which cannot be read. Leave it out."
        ) from None


def as_float64(column: pa.Array) -> NDArray[np.float64]:
    """Numbers as float64, NaN for null."""
    return as_numpy(column.cast(pa.float64(), safe=False).fill_null(float("nan")))


class _Reader:
    """Calls a function on a feature's column; a type that it refuses becomes one sentence."""

    def __init__(self, encoder: Encoder, feature: Feature) -> None:
        self._encoder = encoder
        self._feature = feature

    def __call__(self, read: Callable[..., Any], column: pa.Array, *further: Any, counts: bool = True) -> Any:
        try:
            found = read(column, *further)
        except _UnfitError as error:
            wanted = {"number": "numbers", "truth": "true or false", "moment": "moments"}
            raise DataError(
                f"column {self._feature.source!r} is of type {error}; the model needs "
                f"{wanted.get(self._feature.reading or '', 'words')} there. Convert it."
            ) from None
        if counts and _is_text(column.type):
            lost = _num_unreadable(column, found)
            if lost:
                self._encoder.findings.unreadable[self._feature.source] += lost
        return found


class _Levels:
    """The codes of a categorical feature, found by the values of its levels in the source's own type."""

    def __init__(self, feature: Feature) -> None:
        assert feature.type is not None
        self._type = feature.type
        levels = list(feature.levels)
        self._other = levels.index(OTHER_LEVEL) if OTHER_LEVEL in levels else -1
        self._values_L = _comparable(_text_array(levels), feature.type)

    def codes(self, column: pa.Array) -> tuple[NDArray[np.int32], int]:
        """The code of each row, and how many values training never saw."""
        if pa.types.is_dictionary(column.type) and column.type.value_type != pa.null():
            code_D, _ = self.codes(column.dictionary)
            place_N = as_numpy(column.indices.cast(pa.int32()).fill_null(len(code_D)))
            codes_N = np.append(code_D, np.int32(-1))[place_N]
            missing = column.null_count or int(pc.sum(column.is_null()).as_py() or 0)
            return codes_N, self._unknown(codes_N, missing)
        value_N = _comparable(column, self._type)
        found = pc.index_in(value_N, value_set=self._values_L, skip_nulls=True)
        is_there_N = as_numpy(value_N.is_valid().cast(pa.int8())) == 1
        codes_N = as_numpy(found.fill_null(-1)).copy()
        codes_N[is_there_N & (codes_N < 0)] = self._other
        if self._other >= 0:
            # A text that is no value of the source's type is one of the rarer levels as well.
            is_lost_N = ~is_there_N & (as_numpy(column.is_valid().cast(pa.int8())) == 1)
            codes_N[is_lost_N] = self._other
        return codes_N, self._unknown(codes_N, column.null_count)

    @staticmethod
    def _unknown(codes_N: NDArray[np.int32], missing: int) -> int:
        return max(int((codes_N < 0).sum()) - missing, 0)


def _text_array(texts: Sequence[str]) -> pa.Array:
    """Texts without a null. pyarrow's own `array` loads pandas, which a first prediction would wait for."""
    encoded = [text.encode("utf-8") for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(encoded))
    )


def numbers(column: pa.Array) -> pa.Array:
    """A column as numbers; null for what is none."""
    column = _decoded(column)
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
    if _is_text(kind):
        text = pc.utf8_trim(column.cast(pa.string()), BLANKS)
        is_number = pc.match_substring_regex(text, _PLAIN_NUMBER)
        return pc.utf8_ltrim(pc.if_else(is_number, text, None), "+").cast(pa.float64(), safe=False)
    raise _UnfitError(str(kind))


def as_words(column: pa.Array, kind: str) -> pa.Array:
    """A column as texts in Spark's spelling, which of a source of type `kind` became the levels."""
    column = _decoded(column)
    if _is_text(column.type):
        return column.cast(pa.string())
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.string())
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, "true", "false")
    if pa.types.is_floating(column.type):
        return _float_words(numbers(column), kind)
    if pa.types.is_timestamp(column.type):
        return pc.replace_substring_regex(pc.strftime(moments(column)), r"[.]?0+$", "")
    if _is_plain(column.type):
        return column.cast(pa.string())
    raise _UnfitError(str(column.type))


def _float_words(column: pa.Array, kind: str) -> pa.Array:
    """Whole numbers without a point, unless the source had floats."""
    if kind in ("float", "double"):
        return column.cast(pa.string())
    number_N = column.cast(pa.float64(), safe=False)
    is_whole = pc.and_(pc.equal(number_N, pc.floor(number_N)), pc.less(pc.abs(number_N), 2.0**53))
    whole = pc.if_else(is_whole, number_N, None).cast(pa.int64()).cast(pa.string())
    return pc.if_else(
        pc.is_valid(whole), whole, pc.if_else(pc.is_nan(number_N), None, number_N.cast("string"))
    )


def _comparable(column: pa.Array, kind: str) -> pa.Array:
    """A column, or the texts of its levels, in a form in which equal values are equal."""
    if kind in WHOLE_TYPES:
        return _whole(column)
    if kind == "float":
        return numbers(column).cast(pa.float64(), safe=False).cast(pa.float32(), safe=False)
    if is_number(kind):
        return numbers(column).cast(pa.float64(), safe=False)
    if kind == "boolean":
        return truths(column)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return moments(column).view(pa.int64())
    return as_words(column, kind)


def _whole(column: pa.Array) -> pa.Array:
    """Whole numbers to their last digit; null for what is none."""
    column = _decoded(column)
    if _is_text(column.type):
        text = pc.utf8_trim(column.cast(pa.string()), BLANKS)
        is_whole = pc.match_substring_regex(text, _WHOLE_NUMBER)
        exact = pc.utf8_ltrim(pc.if_else(is_whole, text, None), "+").cast(pa.int64())
        return pc.coalesce(exact, _whole(numbers(column)))
    found = numbers(column)
    if not pa.types.is_floating(found.type):
        return found.cast(pa.int64(), safe=False)
    fits = pc.and_(pc.equal(found, pc.floor(found)), pc.less(pc.abs(found), 2.0**63))
    return pc.if_else(fits, found, None).cast(pa.int64())


def truths(column: pa.Array) -> pa.Array:
    """1 for true, 0 for false, as Spark casts."""
    column = _decoded(column)
    if _is_text(column.type):
        text = pc.utf8_lower(pc.utf8_trim(column.cast(pa.string()), BLANKS))
        is_true = pc.is_in(text, value_set=pa.array(_TRUE))
        is_false = pc.is_in(text, value_set=pa.array(_FALSE))
        return pc.if_else(is_true, 1, pc.if_else(is_false, 0, None)).cast(pa.int8())
    found = numbers(column)
    return pc.not_equal(found, 0).cast(pa.int8()) if not pa.types.is_boolean(column.type) else found


def moments(column: pa.Array) -> pa.Array:
    """Moments in microseconds, in UTC without a zone; numbers are seconds since 1970."""
    column = _decoded(column)
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64()).view(_MOMENT_TYPE)
    if pa.types.is_date(kind):
        return column.cast(_MOMENT_TYPE)
    if _is_text(kind):
        return _text_moments(column.cast(pa.string()))
    if pa.types.is_null(kind):
        return column.cast(_MOMENT_TYPE)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        seconds_N = numbers(column).cast(pa.float64(), safe=False)
        micros_N = pc.if_else(pc.is_finite(seconds_N), pc.floor(pc.multiply(seconds_N, 1e6)), None)
        return micros_N.cast(pa.int64(), safe=False).view(_MOMENT_TYPE)
    raise _UnfitError(str(kind))


def _text_moments(text: pa.Array) -> pa.Array:
    text = pc.utf8_trim(text, BLANKS)
    text = pc.if_else(pc.match_substring_regex(text, f"^({MOMENT})$"), text, None)
    text = pc.replace_substring_regex(text, _FINER, r"\1")
    is_zoned = pc.match_substring_regex(text, _ZONE)
    try:
        zoned = pc.if_else(is_zoned, text, None).cast(pa.timestamp("us", "UTC")).view(pa.int64())
        plain = pc.if_else(is_zoned, None, text).cast(_MOMENT_TYPE).view(pa.int64())
        return pc.coalesce(zoned, plain).view(_MOMENT_TYPE)
    except pa.ArrowInvalid:  # such as the 30th of February
        return pa.array([_text_moment(one) for one in text.to_pylist()], pa.int64()).view(_MOMENT_TYPE)


def _text_moment(text: str | None) -> int | None:
    """Microseconds since 1970; None for no moment."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)


def part_of(moments: pa.Array, part: str | None) -> pa.Array:
    """One of `sparkgpu.prepare.moments.TIME_PARTS`."""
    if part == "days since 1970":
        second_N = pc.floor(pc.divide(moments.view(pa.int64()).cast(pa.float64(), safe=False), 1e6))
        return pc.divide(second_N, _SECONDS_PER_DAY)
    parts: dict[str | None, Callable[[pa.Array], pa.Array]] = {
        "year": pc.year,
        "month": pc.month,
        "day": pc.day,
        # Sunday is the first day, as in Spark.
        "weekday": lambda found: pc.day_of_week(found, count_from_zero=False, week_start=7),
        "hour": pc.hour,
        "minute": pc.minute,
    }
    return parts[part](moments)


def _num_unreadable(texts: pa.Array, found: pa.Array) -> int:
    """The texts without a value that are no mark of a missing one."""
    is_lost = pc.and_(texts.is_valid(), found.is_null())
    if not pc.any(is_lost).as_py():
        return 0
    lost = pc.utf8_trim(_decoded(texts).cast(pa.string()).filter(is_lost), BLANKS)
    return len(lost) - int(pc.sum(pc.is_in(lost, value_set=pa.array(MISSING_MARKS))).as_py() or 0)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_null(kind)
    )


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array; without a value its type says nothing."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.nulls(len(whole)) if whole.null_count == len(whole) else whole
