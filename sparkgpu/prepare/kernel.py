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
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.core.config.values import Role
from sparkgpu.prepare.column_values import (
    BLANKS,
    LEADING_ZERO,
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
from sparkgpu.prepare.columns import TIME_TYPES, is_number, is_span, spark_type
from sparkgpu.prepare.hashes import row_hashes
from sparkgpu.prepare.roles import FLOAT32_MAX, MANY_CLASSES, ColumnStatistics, Held
from sparkgpu.prepare.timestamps import varying_parts

_SAMPLE = 200
_MEASURED = r"[.]|[eE][+-]"
"""Found in some text of numbers that are not codes (``12E3`` may be the number of a seat)."""


@dataclass(kw_only=True)
class Figures:
    """Counts of rows, and the least and the greatest of some figures: numbers that fit 32 bits, hours, ..."""

    rows: Counter[str] = field(default_factory=Counter)
    ends: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def add_numbers(self, number_N: pa.Array, rows_N: pa.Array | None = None) -> pa.Array:
        """Add floats without nulls, of `rows_N` rows or one each. Returns those that fit 32 bits."""
        fits_N = pc.less_equal(pc.abs(number_N), FLOAT32_MAX)
        if not _all(fits_N):
            for name, which_N in (
                ("nan", pc.is_nan(number_N)),
                ("infinite", pc.is_inf(number_N)),
                ("too large", pc.and_(pc.is_finite(number_N), pc.invert(fits_N))),
            ):
                self.rows[name] += _sum(which_N if rows_N is None else rows_N.filter(which_N))
            number_N = number_N.filter(fits_N)
        self.add("number", number_N)
        return number_N

    def add_timestamps(self, timestamp_N: pa.Array) -> None:
        """Add timestamps in microseconds, in UTC without a zone."""
        self.add("microsecond", timestamp_N.view(pa.int64()))
        self.add("hour", pc.hour(timestamp_N))
        self.add("minute", pc.minute(timestamp_N))

    def add(self, name: str, value_N: pa.Array) -> None:
        found = pc.min_max(value_N).as_py()
        if found["min"] is not None:
            self._widen(name, found["min"], found["max"])

    def merge(self, other: Figures) -> None:
        self.rows.update(other.rows)
        for name, (least, greatest) in other.ends.items():
            self._widen(name, least, greatest)

    def _widen(self, name: str, least: Any, greatest: Any) -> None:
        known = self.ends.get(name, (least, greatest))
        self.ends[name] = min(known[0], least), max(known[1], greatest)


@dataclass(kw_only=True)
class TextFindings:
    """Whether the texts of a column are all numbers, or all timestamps, and their figures."""

    may_hold: frozenset[Held] = frozenset(("numbers", "timestamps"))
    numbers: Figures = field(default_factory=Figures)
    timestamps: Figures = field(default_factory=Figures)

    def add(self, texts: pa.Array) -> None:
        """Add the texts of a batch, without nulls."""
        # The first texts show that most columns are plainly neither; the others then cost nothing more.
        for some in (texts[:_SAMPLE], texts[_SAMPLE:]):
            if not self.may_hold:
                return
            counted = pc.value_counts(some)  # each different text is looked at once
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
        found = self.numbers.rows
        found["values"] += _sum(rows_D)
        for figure, form in (("measured", _MEASURED), ("leading zeros", LEADING_ZERO)):
            found[figure] += _sum(rows_D.filter(pc.match_substring_regex(text_D, form)))
        self.numbers.add_numbers(pc.utf8_ltrim(text_D, "+").cast(pa.float64()), rows_D)
        return True

    def _add_timestamps(self, text_D: pa.Array, rows_D: pa.Array) -> bool:
        """False if one of these texts is not a timestamp."""
        if not _all(pc.match_substring_regex(text_D, f"^({TIMESTAMP})$")):
            return False
        timestamp_D = timestamps(text_D)
        if timestamp_D.null_count:  # such as the 30th of February
            return False
        self.timestamps.add_timestamps(timestamp_D)
        self.timestamps.rows["values"] += _sum(rows_D)
        return True

    def merge(self, other: TextFindings) -> None:
        self.may_hold &= other.may_hold
        self.numbers.merge(other.numbers)
        self.timestamps.merge(other.timestamps)

    def holds(self, asked: Role | None) -> Held:
        """What the texts are; numbers are codes unless some were measured, or the user asked for numbers."""
        found = self.numbers.rows
        if "numbers" in self.may_hold and found["values"]:
            is_code = found["leading zeros"] or not found["measured"]
            return "codes" if is_code and asked != "numeric" else "numbers"
        return "timestamps" if "timestamps" in self.may_hold and self.timestamps.rows["values"] else "text"


@dataclass(kw_only=True)
class ColumnFindings:
    """The figures of one column.

    `counts` are the rows of each value, for targets only, and for slightly more than `MANY_CLASSES`.
    """

    type: pa.DataType
    is_target: bool
    asked: Role | None
    figures: Figures = field(default_factory=Figures)
    texts: TextFindings = field(default_factory=TextFindings)
    counts: Counter[Any] = field(default_factory=Counter)

    def add(self, column: pa.Array) -> None:
        """Add a batch of the column."""
        values = decoded(column).drop_null()
        kind = values.type
        self.figures.rows["values"] += len(values)
        if pa.types.is_floating(kind):
            values = values.cast(pa.float32()) if pa.types.is_float16(kind) else values
            values = self.figures.add_numbers(values)
        elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            self.figures.add("number", values)
        elif is_text(kind):
            self.texts.add(values.cast(pa.string()))
        if self.is_target and len(self.counts) <= MANY_CLASSES and not pa.types.is_nested(kind):
            for found in pc.value_counts(values)[: MANY_CLASSES + 1].to_pylist():
                self.counts[found["values"]] += found["counts"]  # 0.0 and -0.0 are equal in Python
        is_readable = is_text(kind) or is_number(spark_type(kind))
        if spark_type(kind) in TIME_TYPES or (self.asked == "timestamp" and is_readable):
            self.figures.add_timestamps(timestamps(values).drop_null())

    def merge(self, other: ColumnFindings) -> None:
        self.figures.merge(other.figures)
        self.texts.merge(other.texts)
        self.counts.update(other.counts)

    def statistics(self, name: str, kind: str, rows: int) -> ColumnStatistics:
        """The figures by which the column's role is decided; `kind` is its type in Spark's spelling."""
        held: Held = self.texts.holds(self.asked) if kind == "string" else "text"
        read_as = {"numbers": self.texts.numbers, "timestamps": self.texts.timestamps}
        figures = read_as.get(held, self.figures)
        nan = figures.rows["nan"]
        least, greatest = figures.ends.get("number", (None, None))
        is_numeric = is_number(kind) or held == "numbers"
        return ColumnStatistics(
            name=name,
            type=kind,
            rows=rows,
            values=figures.rows["values"] - nan,
            nan=0 if held == "numbers" else nan,
            infinite=figures.rows["infinite"],
            too_large=figures.rows["too large"],
            least=least,
            greatest=greatest,
            held=held,
            counts=_spelled(self.counts, self.type, is_number=is_numeric) if self.is_target else None,
            parts=varying_parts(self.figures.ends if self.asked == "timestamp" else figures.ends),
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

    @property
    def fingerprint(self) -> str:
        content = (sorted(self.columns), self.rows, self.mixed, self.total)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


def look(
    batches: Iterable[pa.RecordBatch],
    *,
    schema: pa.Schema,
    targets: Collection[str],
    roles: Mapping[str, Role],
) -> Findings:
    """The kernel: what batches of rows with the columns of `schema` show."""
    found = Findings(
        columns={
            column.name: ColumnFindings(
                type=column.type, is_target=column.name in targets, asked=roles.get(column.name)
            )
            for column in schema
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


def _all(which_N: pa.Array) -> bool:
    return pc.all(which_N).as_py() is not False


def _sum(rows_N: pa.Array) -> int:
    return pc.sum(rows_N).as_py() or 0


def _spelled(counts: Mapping[Any, int], kind: pa.DataType, *, is_number: bool) -> dict[str, int]:
    """Rows by the text of a class: whole numbers without a point, ``true`` and ``false``."""
    kind = pa.float32() if pa.types.is_float16(kind) else pa.float64() if is_span(kind) else kind
    values = decoded(pa.array(list(counts), kind))
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
