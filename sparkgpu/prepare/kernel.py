"""What is found out about a table: a function of batches of its rows, whose results can be merged.

Threads run it over the files of this machine (`sparkgpu.prepare.local_rows`) and Spark's tasks over the rows
that Spark holds (`sparkgpu.prepare.spark_rows`). It finds the figures of each column from which its role
follows, and the fingerprint of the rows.

A text column is read as numbers or timestamps only if each of its texts is one or stands for a missing value.
All rows count, so that every split reads it the same way. In formats with types somebody chose text, so whole
numbers stay categories: flight numbers, zip codes and levels called ``1`` to ``5`` look just like counts. A
decimal point shows a measured value.

N rows of a batch, D different texts of a batch.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.core.config.values import Role
from sparkgpu.prepare.column_types import TIME_TYPES, WHOLE_TYPES, is_number, spark_type
from sparkgpu.prepare.column_values import (
    BLANKS,
    MISSING_TEXTS,
    NUMBER,
    TIMESTAMP,
    UnfitError,
    as_texts,
    decoded,
    is_text,
    numbers,
    timestamps,
)
from sparkgpu.prepare.hashes import row_hashes
from sparkgpu.prepare.roles import FLOAT32_MAX, MANY_CLASSES, ColumnStatistics, Held
from sparkgpu.prepare.timestamps import varying_parts

_SAMPLE = 200
_LARGEST_LONG = 2.0**63
_MEASURED = r"[.]|[eE][+-]"
"""Found in some text of numbers that are not codes (``12E3`` may be the number of a seat)."""
_LEADING_ZERO = r"^[+-]?0[0-9]"
"""A beginning that only codes have; people do not write numbers like this."""
_FORMS: Mapping[Held, str] = {"numbers": NUMBER, "timestamps": TIMESTAMP}


class Extremes(dict[str, Any]):
    """The least and the greatest value of each figure of a column: ``least hour``, ``greatest hour``."""

    def widen(self, name: str, least: Any, greatest: Any) -> None:
        if least is not None:
            self[f"least {name}"] = min(self.get(f"least {name}", least), least)
            self[f"greatest {name}"] = max(self.get(f"greatest {name}", greatest), greatest)

    def merge(self, other: Extremes) -> None:
        for key in {key.partition(" ")[2] for key in other}:
            self.widen(key, other[f"least {key}"], other[f"greatest {key}"])

    def add(self, name: str, values: pa.Array) -> None:
        found = pc.min_max(values)
        self.widen(name, found["min"].as_py(), found["max"].as_py())

    def add_timestamps(self, timestamps: pa.Array) -> None:
        """Timestamps in microseconds, in UTC without a zone."""
        self.add("microsecond", timestamps.view(pa.int64()))
        self.add("hour", pc.hour(timestamps))
        self.add("minute", pc.minute(timestamps))


@dataclass(kw_only=True)
class TextFindings:
    """Whether the texts of a column are all numbers, or all timestamps, and their figures.

    The first texts show that most columns are plainly neither, and these cost nothing more.
    """

    may_hold: frozenset[Held] | None = None
    figures: Counter[str] = field(default_factory=Counter)
    numbers: Extremes = field(default_factory=Extremes)
    timestamps: Extremes = field(default_factory=Extremes)

    def add(self, texts: pa.Array) -> None:
        """Add the texts of a batch, without nulls."""
        if self.may_hold is None and len(texts):
            self.may_hold = _may_hold(texts[:_SAMPLE].to_pylist())
        if not self.may_hold:
            return
        counted = pc.value_counts(texts)  # each different text is looked at once
        text_D = pc.utf8_trim(counted.field("values"), BLANKS)
        is_there_D = pc.invert(pc.is_in(text_D, value_set=pa.array(MISSING_TEXTS, text_D.type)))
        text_D, rows_D = text_D.filter(is_there_D), counted.field("counts").filter(is_there_D)
        for held, add in (("numbers", self._add_numbers), ("timestamps", self._add_timestamps)):
            if held in self.may_hold and not add(text_D, rows_D):
                self.may_hold -= {held}

    def _add_numbers(self, text_D: pa.Array, rows_D: pa.Array) -> bool:
        """False if one of these texts is not a number."""
        if not _all(pc.match_substring_regex(text_D, f"^({NUMBER})$")):
            return False
        number_D = pc.utf8_ltrim(text_D, "+").cast(pa.float64())
        fits_D = pc.less_equal(pc.abs(number_D), FLOAT32_MAX)
        for figure, which_D in (
            ("numbers", number_D.is_valid()),
            ("measured", pc.match_substring_regex(text_D, _MEASURED)),
            ("leading zeros", pc.match_substring_regex(text_D, _LEADING_ZERO)),
            ("nan", pc.is_nan(number_D)),
            ("infinite", pc.is_inf(number_D)),
            ("too large", pc.and_(pc.is_finite(number_D), pc.invert(fits_D))),
            ("broken", is_broken(number_D)),
        ):
            self.figures[figure] += pc.sum(rows_D.filter(which_D)).as_py() or 0
        self.numbers.add("number", number_D.filter(fits_D))
        return True

    def _add_timestamps(self, text_D: pa.Array, rows_D: pa.Array) -> bool:
        """False if one of these texts is not a timestamp."""
        if not _all(pc.match_substring_regex(text_D, f"^({TIMESTAMP})$")):
            return False
        timestamp_D = timestamps(text_D)
        if timestamp_D.null_count:  # such as the 30th of February
            return False
        self.timestamps.add_timestamps(timestamp_D)
        self.figures["timestamps"] += pc.sum(rows_D).as_py() or 0
        return True

    def merge(self, other: TextFindings) -> None:
        known = [found for found in (self.may_hold, other.may_hold) if found is not None]
        self.may_hold = frozenset.intersection(*known) if known else None
        self.figures.update(other.figures)
        self.numbers.merge(other.numbers)
        self.timestamps.merge(other.timestamps)

    def holds(self, asked: Role | None) -> Held:
        """What the texts are; numbers are codes unless some were measured, or the user asked for numbers."""
        if self.may_hold and "numbers" in self.may_hold and self.figures["numbers"]:
            is_code = self.figures["leading zeros"] or not self.figures["measured"]
            return "codes" if is_code and asked != "numeric" else "numbers"
        return (
            "timestamps"
            if self.may_hold and "timestamps" in self.may_hold and self.figures["timestamps"]
            else "text"
        )


@dataclass(kw_only=True)
class ColumnFindings:
    """The figures of one column. Extremes are those of the numbers that fit 32 bits.

    `counts` are the rows of each value, for the target only, and for slightly more than `MANY_CLASSES`.
    """

    type: pa.DataType
    is_target: bool
    asked: Role | None
    values: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    extremes: Extremes = field(default_factory=Extremes)
    texts: TextFindings = field(default_factory=TextFindings)
    counts: Counter[Any] = field(default_factory=Counter)

    def add(self, column: pa.Array) -> None:
        """Add a batch of the column."""
        values = decoded(column).drop_null()
        kind = values.type
        self.values += len(values)
        if pa.types.is_floating(kind):
            values = self._finite(values)
        if self.is_target and len(self.counts) <= MANY_CLASSES and not pa.types.is_nested(kind):
            for found in pc.value_counts(values)[: MANY_CLASSES + 1].to_pylist():
                self.counts[found["values"]] += found["counts"]  # 0.0 and -0.0 are equal in Python
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            self.extremes.add("number", values)
        elif is_text(kind):
            self.texts.add(values.cast(pa.string()))
        if spark_type(kind) in TIME_TYPES or (self.asked == "timestamp" and self._is_readable(kind)):
            self.extremes.add_timestamps(timestamps(values).drop_null())
        if self.is_target and is_number(spark_type(kind)) and not pa.types.is_integer(kind):
            self.figures["broken"] += pc.sum(is_broken(values.cast(pa.float64(), safe=False))).as_py() or 0

    @staticmethod
    def _is_readable(kind: pa.DataType) -> bool:
        return is_text(kind) or is_number(spark_type(kind))

    def _finite(self, values: pa.Array) -> pa.Array:
        values = values.cast(pa.float32()) if pa.types.is_float16(values.type) else values
        is_finite = pc.is_finite(values)
        if not _all(is_finite):
            self.figures["nan"] += pc.sum(pc.is_nan(values)).as_py() or 0
            self.figures["infinite"] += pc.sum(pc.is_inf(values)).as_py() or 0
            values = values.filter(is_finite)
        found = pc.min_max(values)
        if any(end is not None and abs(end) > FLOAT32_MAX for end in found.as_py().values()):
            fits = pc.less_equal(pc.abs(values), FLOAT32_MAX)
            self.figures["too large"] += pc.sum(pc.invert(fits)).as_py() or 0
            found = pc.min_max(values.filter(fits))
        self.extremes.widen("number", found["min"].as_py(), found["max"].as_py())
        return values

    def merge(self, other: ColumnFindings) -> None:
        self.values += other.values
        self.figures.update(other.figures)
        self.extremes.merge(other.extremes)
        self.texts.merge(other.texts)
        self.counts.update(other.counts)

    def statistics(self, name: str, kind: str, rows: int) -> ColumnStatistics:
        """The figures by which the column's role is decided; `kind` is its type in Spark's spelling."""
        held: Held = self.texts.holds(self.asked) if kind == "string" else "text"
        is_text_number = held == "numbers"
        figures = self.texts.figures if is_text_number else self.figures
        extremes = self.texts.numbers if is_text_number else self.extremes
        nan, infinite, too_large = figures["nan"], figures["infinite"], figures["too large"]
        least, greatest = extremes.get("least number"), extremes.get("greatest number")
        values = {"numbers": figures["numbers"], "timestamps": self.texts.figures["timestamps"]}.get(
            held, self.values
        )
        if is_text_number:
            varies = least is None or least != greatest or infinite + too_large > 0
        elif kind == "boolean" or nan + infinite + too_large:
            varies = least is not None and least != greatest
        else:
            varies = not is_number(kind) or least is None or least != greatest
        is_numeric = is_number(kind) or is_text_number
        times = self.texts.timestamps if held == "timestamps" and self.asked != "timestamp" else self.extremes
        return ColumnStatistics(
            name=name,
            type=kind,
            rows=rows,
            values=values - nan,
            varies=varies,
            nan=0 if is_text_number else nan,
            infinite=infinite,
            too_large=too_large,
            least=float(least) if is_numeric and least is not None else None,
            greatest=float(greatest) if is_numeric and greatest is not None else None,
            whole=kind in WHOLE_TYPES or (self.is_target and is_numeric and figures["broken"] + nan == 0),
            held=held,
            counts=_spelled(self.counts, self.type, is_number=is_numeric) if self.is_target else None,
            parts=varying_parts(times),
        )


@dataclass(kw_only=True)
class Findings:
    """What batches of a table showed. The fingerprint covers the rows' content in any order."""

    columns: dict[str, ColumnFindings]
    rows: int = 0
    mixed: int = 0
    total: int = 0

    def merge(self, other: Findings) -> None:
        for name, column in other.columns.items():
            self.columns[name].merge(column)
        self.rows += other.rows
        # Two equal rows cancel out in the first, not in the second.
        self.mixed ^= other.mixed
        self.total = (self.total + other.total) % 2**64

    def statistics(self, types: Mapping[str, str]) -> dict[str, ColumnStatistics]:
        return {name: found.statistics(name, types[name], self.rows) for name, found in self.columns.items()}

    def fingerprint(self, types: Mapping[str, str]) -> str:
        content = (sorted(types.items()), self.rows, self.mixed, self.total)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Look:
    """The kernel: called with the batches of some rows, it returns their `Findings`."""

    schema: pa.Schema
    target: str
    roles: Mapping[str, Role]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Findings:
        found = Findings(
            columns={
                column.name: ColumnFindings(
                    type=column.type, is_target=column.name == self.target, asked=self.roles.get(column.name)
                )
                for column in self.schema
            }
        )
        for batch in batches:
            for name, column in found.columns.items():
                column.add(batch.column(name))
            hash_N = row_hashes(batch)
            found.rows += batch.num_rows
            found.mixed ^= int(np.bitwise_xor.reduce(hash_N))
            found.total = (found.total + int((hash_N >> np.uint64(32)).sum())) % 2**64
        return found


class Mergeable(Protocol):
    """What a function of batches found out; the findings of two parts of a table give those of both."""

    def merge(self, other: Self) -> None: ...


FoundT = TypeVar("FoundT", bound=Mergeable)


def merged(parts: Sequence[FoundT]) -> FoundT:
    """The findings of all parts of a table, of which there is at least one."""
    whole, *others = parts
    for other in others:
        whole.merge(other)
    return whole


def is_broken(number_N: pa.Array) -> pa.Array:
    """The numbers that are not whole, within the range of 64-bit integers."""
    is_whole_N = pc.and_(pc.equal(number_N, pc.floor(number_N)), pc.less(pc.abs(number_N), _LARGEST_LONG))
    return pc.invert(is_whole_N)


def _may_hold(texts: Sequence[str]) -> frozenset[Held]:
    """What a column with these sample texts may hold."""
    stripped = [text.strip(BLANKS) for text in texts]
    shown = [text for text in stripped if text not in MISSING_TEXTS]
    return frozenset(held for held, form in _FORMS.items() if all(re.fullmatch(form, text) for text in shown))


def _all(which_N: pa.Array) -> bool:
    return pc.all(which_N).as_py() is not False


def _spelled(counts: Mapping[Any, int], kind: pa.DataType, *, is_number: bool) -> dict[str, int]:
    """Rows by the text of a class: whole numbers without a point, ``true`` and ``false``."""
    values = decoded(pa.array(list(counts), kind if not pa.types.is_float16(kind) else pa.float32()))
    is_number = is_number and not pa.types.is_integer(values.type)  # all digits of an integer count
    try:
        found = numbers(values).cast(pa.float64(), safe=False) if is_number else as_texts(values, "string")
    except (UnfitError, pa.ArrowInvalid):  # such as lists or bytes, which are no classes
        return {}
    spelled: Counter[str] = Counter()
    for value, rows in zip(found.to_pylist(), counts.values(), strict=True):
        if value is not None:
            spelled[_number_text(value) if is_number else value] += rows
    return dict(spelled)


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
