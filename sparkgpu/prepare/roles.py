"""Decides what each column is: a number, a category, a timestamp, a text, or nothing to learn from.

Pure Python on figures from one pass over the table (`sparkgpu.prepare.kernel`), so each rule can be
tested without Spark. Every column that is left out gets a reason.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sparkgpu.core.config.values import Role
from sparkgpu.core.errors import DataError
from sparkgpu.core.table.schema import RESERVED_COLUMNS, DroppedColumn
from sparkgpu.prepare.columns import TIME_TYPES, WHOLE_TYPES, WORDS, is_number

FEW_CLASSES = 20
"""An integer target with at most this many values is taken as classes."""
MANY_CLASSES = 1000
FLOAT32_MAX = 3.4028234663852886e38
"""The largest number that engines accept: all of them learn from 32-bit numbers."""
Held = Literal["text", "codes", "numbers", "timestamps"]
"""What texts may be: real numbers, numbers that are codes, timestamps, or plain text."""
ID_LIKE = "id-like"
_PANDAS_INDEX = re.compile(r"__index_level_\d+__|Unnamed: 0")  # without a name, in Parquet and CSV
_ID_SHARE = 0.95
_ID_ROWS = 50
_TEXT_SHARE, _TEXT_WORDS = 0.5, 4


Family = Literal["number", "boolean", "text", "time", "other"]


def family_of(kind: str) -> Family:
    """What a type in Spark's spelling holds."""
    if is_number(kind):
        return "number"
    if kind in ("boolean", "string"):
        return "boolean" if kind == "boolean" else "text"
    return "time" if kind in TIME_TYPES else "other"


@dataclass(frozen=True, kw_only=True)
class ColumnStatistics:
    """One column of the source. Counts are of rows.

    `values` counts rows that are neither null nor NaN (nor, for numbers or timestamps written as text, a mark
    for a missing value). `infinite` counts those at plus or minus infinity, `too_large` those beyond
    `FLOAT32_MAX`. `least` and `greatest` are the extremes of the other numbers, or of booleans. `held` tells
    what the texts of a column are. `counts` are the rows of each value of a target that may be classes, in
    Spark's spelling, for slightly more values than `MANY_CLASSES`; None for any other column. `parts` names
    the parts of a timestamp that vary.
    """

    name: str
    type: str
    rows: int
    values: int
    nan: int = 0
    infinite: int = 0
    too_large: int = 0
    least: Any = None
    greatest: Any = None
    held: Held = "text"
    counts: Mapping[str, int] | None = field(default=None, compare=False)
    parts: tuple[str, ...] = ()

    @property
    def family(self) -> Family:
        return family_of(self.type)

    @property
    def varies(self) -> bool:
        """False if all values are known to be equal; texts are counted later."""
        is_ordered = self.numeric or self.family == "boolean"
        return not is_ordered or self.least != self.greatest or self.infinite + self.too_large > 0

    @property
    def is_one_single(self) -> bool:
        """Whether numbers that differ are all the same 32-bit number."""
        if not self.numeric or not self.varies or self.infinite + self.too_large > 0:
            return False
        return bool(np.float32(self.least) == np.float32(self.greatest))

    @property
    def whole(self) -> bool:
        """Whether all its numbers are whole; known for integer types and for the target."""
        if self.type in WHOLE_TYPES or not self.numeric:
            return self.type in WHOLE_TYPES
        values = [float(text) for text in self.counts or ()]
        return bool(values) and all(value.is_integer() and abs(value) < 2**63 for value in values)

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers, also if they are text with marks for missing values."""
        return self.family == "number" or self.held == "numbers"

    def is_feature_as(self, role: Role) -> bool:
        """Whether its values in this role are features already: booleans, or numbers that all fit 32 bits."""
        if role == "boolean":
            return self.family == "boolean"
        return role == "numeric" and self.family == "number" and self.infinite + self.too_large == 0


@dataclass(frozen=True, kw_only=True)
class ColumnRole:
    """A column in use, and its role; `parts` are the parts of a timestamp that vary.

    `asked` marks a role from the user, which no rule overrides.
    """

    column: str
    role: Role
    parts: tuple[str, ...] = ()
    asked: bool = False


def decide_roles(
    statistics: Iterable[ColumnStatistics], *, roles: Mapping[str, Role], ignore: Sequence[str]
) -> tuple[list[ColumnRole], list[DroppedColumn]]:
    """A role for every feature column, or the reason why it is left out. The user's choice comes first."""
    kept: list[ColumnRole] = []
    dropped: list[DroppedColumn] = []
    for column in statistics:
        decision = _decide(column, "ignore" if column.name in ignore else roles.get(column.name))
        if isinstance(decision, str):
            dropped.append(DroppedColumn(column=column.name, reason=decision))
        else:
            kept.append(decision)
    return kept, dropped


def _decide(column: ColumnStatistics, asked: Role | None) -> ColumnRole | str:
    if asked == "ignore":
        return "ignored in the configuration"
    if column.values == 0:
        return "no values: every row is null"
    if asked == "timestamp" and not column.parts:
        return "asked to be a timestamp, but no two different timestamps of ISO 8601 are read in it"
    if asked is not None:
        parts = column.parts if asked == "timestamp" else ()
        return ColumnRole(column=column.name, role=asked, parts=parts, asked=True)
    if _PANDAS_INDEX.fullmatch(column.name):
        return f"{ID_LIKE}: the index of a frame, which pandas wrote beside its columns"
    if column.type == WORDS:
        return ColumnRole(column=column.name, role="text")
    if column.family == "other":
        return f"of type {column.type}, which holds no single value"
    if column.numeric and column.least is None:
        return "no values: every number is infinite or beyond 3.4e38"
    if not column.varies and column.values == column.rows:
        return "constant: one value in every row"
    if column.is_one_single and column.values == column.rows:
        return (
            f"constant as 32-bit numbers, which models learn from: all lie between {column.least} and "
            f"{column.greatest}; subtract an offset"
        )
    if column.family == "time" or column.held == "timestamps":
        if not column.parts:
            return "constant: one timestamp in every row that has one"
        return ColumnRole(column=column.name, role="timestamp", parts=column.parts)
    if column.family == "boolean":
        return ColumnRole(column=column.name, role="boolean")
    if column.family == "number":
        if _numbers_rows(column):
            return f"{ID_LIKE}: numbers the rows"
        return ColumnRole(column=column.name, role="numeric")
    return ColumnRole(column=column.name, role="numeric" if column.numeric else "categorical")


def text_reason(levels: int, values: int, rows: int) -> str | None:
    """Why a text column with `levels` levels in `values` of `rows` rows is left out; None if it is used."""
    if levels == 0:
        return "no values: every training row is null"
    if levels == 1 and values == rows:
        return "constant: one value in every training row"
    if values >= _ID_ROWS and levels >= _ID_SHARE * values:
        return f"{ID_LIKE} or free text: {levels:,} different texts in {values:,} training rows"
    return None


def is_prose(levels: int, values: int, words: float) -> bool:
    """Whether a column's texts, of so many `words` each, are read word by word: most differ, and are long."""
    return values >= _ID_ROWS and levels >= _TEXT_SHARE * values and words >= _TEXT_WORDS


def _numbers_rows(column: ColumnStatistics) -> bool:
    """Whether it is a running number: whole numbers that span exactly as many values as there are rows."""
    if column.least is None or column.greatest is None or not column.whole or column.rows < _ID_ROWS:
        return False
    return bool(column.values == column.rows == column.greatest - column.least + 1)


def infer_task(target: ColumnStatistics, asked: str) -> Literal["classes", "regression"]:
    """Whether the target is taken as classes or as a number. Raises `DataError` if it cannot be learned."""
    name = f"target {target.name!r}"
    if target.values + target.nan == 0:
        raise DataError(f"{name}: all {target.rows:,} rows are null. Choose a target with values.")
    if asked in ("binary", "multiclass") and target.family != "other":
        return "classes"
    if target.family in ("time", "other"):
        raise DataError(
            f"{name} is of type {target.type}, neither classes nor a number. Derive a number from it."
        )
    is_text = not target.numeric
    if asked == "regression":
        if is_text:
            raise DataError(f"{name} holds no numbers, so regression cannot learn it. Use --task multiclass.")
        return "regression"
    if is_text:
        return "classes"
    return "classes" if target.whole and len(target.counts or ()) <= FEW_CLASSES else "regression"


def safe_names(titles: Sequence[str]) -> list[str]:
    """Unique column names of letters, digits and underscores, without the reserved ones.

    LightGBM refuses names with JSON's special characters, XGBoost brackets and ``<``, H2O's client quotes. So
    names that every engine accepts are made here, once.
    """
    taken = {name.casefold() for name in RESERVED_COLUMNS}
    names: list[str] = []
    for position, title in enumerate(titles, start=1):
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
        base = re.sub(r"[^0-9A-Za-z]+", "_", plain).strip("_") or f"column_{position}"
        if base[0].isdigit():
            base = f"_{base}"
        name, number = base, 2
        while name.casefold() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.casefold())
        names.append(name)
    return names
