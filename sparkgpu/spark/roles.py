"""Decides what each column is: a number, a category, a moment in time, or nothing to learn from.

Pure Python on figures gathered in one pass over the table (`sparkgpu.spark.statistics`), so that each rule
can be tested without Spark. Every column that is left out gets a reason.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparkgpu.config import Role
from sparkgpu.errors import DataError, listed, nearest
from sparkgpu.schema import RESERVED_COLUMNS, DroppedColumn

NUMBER_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
FEW_CLASSES = 20
"""An integer target with at most this many values is read as classes."""
MANY_CLASSES = 1000
_ID_SHARE = 0.95
_ID_ROWS = 50


@dataclass(frozen=True, kw_only=True)
class ColumnStatistics:
    """One column of the source. Counts are of rows.

    `values` counts rows that are neither null nor NaN, `infinite` those at plus or minus infinity;
    `varies` is False where they are known to be all the same (texts are counted later). `least` and
    `greatest` are given for numbers. `whole` is known of integer types and
    of the target. `unparsable` counts the texts of a text file's column that are neither a number nor a
    usual mark for a missing value (None elsewhere).
    `parts` names the parts of a timestamp that vary.
    """

    name: str
    type: str
    rows: int
    values: int
    varies: bool = True
    nan: int = 0
    infinite: int = 0
    least: float | None = None
    greatest: float | None = None
    whole: bool = False
    unparsable: int | None = None
    parts: tuple[str, ...] = ()

    @property
    def family(self) -> Literal["number", "boolean", "text", "time", "other"]:
        if self.type.startswith(NUMBER_TYPES):
            return "number"
        if self.type in ("boolean", "string"):
            return "boolean" if self.type == "boolean" else "text"
        return "time" if self.type in ("date", "timestamp", "timestamp_ntz") else "other"


@dataclass(frozen=True, kw_only=True)
class ColumnRole:
    """A column that is used, and as what; `parts` are the parts of a timestamp that vary.

    `asked` marks a role that the user gave: it is not second-guessed.
    """

    column: str
    role: Role
    parts: tuple[str, ...] = ()
    asked: bool = False


def check_columns(columns: Sequence[str], *, target: str | None, roles: Mapping[str, Role],
                  others: Mapping[str, str]) -> str:  # fmt: skip
    """Check every column that the configuration names; returns the target.

    `others` maps a configuration key to the column it names. Raises `DataError` with the nearest name.
    """
    if target is None:
        raise DataError(f"no target is named. Say which column to predict with --target: {listed(columns)}.")
    for key, name in {
        "target": target,
        **others,
        **{f"data.roles ({role})": c for c, role in roles.items()},
    }.items():
        if name not in columns:
            raise DataError(
                f"{key} {name!r}: no such column.{nearest(name, columns)} Columns: {listed(columns)}."
            )
    return target


def decide_roles(
    statistics: Iterable[ColumnStatistics], *, roles: Mapping[str, Role], ignore: Sequence[str]
) -> tuple[list[ColumnRole], list[DroppedColumn]]:
    """A role for every feature column, or the reason why it is left out. The user's own word goes first."""
    kept: list[ColumnRole] = []
    dropped: list[DroppedColumn] = []
    for column in statistics:
        decision = (
            "ignored in the configuration"
            if column.name in ignore
            else _decide(column, roles.get(column.name))
        )
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
    if asked is not None:
        return _asked(column, asked)
    if column.family == "other":
        return f"of type {column.type}, which holds no single value"
    if not column.varies and column.values == column.rows:
        return "constant: one value in every row"
    if column.family == "time":
        if not column.parts:
            return "constant: one value in every row"
        return ColumnRole(column=column.name, role="timestamp", parts=column.parts)
    if column.family == "boolean":
        return ColumnRole(column=column.name, role="boolean")
    if column.family == "number":
        return (
            "id-like: numbers the rows"
            if _numbers_rows(column)
            else ColumnRole(column=column.name, role="numeric")
        )
    if column.unparsable == 0:
        return ColumnRole(column=column.name, role="numeric")
    return ColumnRole(column=column.name, role="categorical")


def text_reason(levels: int, values: int, rows: int) -> str | None:
    """Why a text column with so many `levels` in `values` of `rows` rows is left out (None: it is used)."""
    if levels <= 1 and values == rows:
        return "constant: one value in every row"
    if values >= _ID_ROWS and levels >= _ID_SHARE * values:
        return f"id-like: {levels:,} different texts in {values:,} rows"
    return None


def _asked(column: ColumnStatistics, role: Role) -> ColumnRole:
    if role == "timestamp":
        return ColumnRole(column=column.name, role=role, parts=column.parts, asked=True)
    if role == "numeric" and column.family in ("time", "other"):
        raise DataError(
            f"data.roles: {column.name!r} is of type {column.type} and cannot be read as numbers; "
            "choose timestamp or ignore."
        )
    return ColumnRole(column=column.name, role=role, asked=True)


def _numbers_rows(column: ColumnStatistics) -> bool:
    """Whole numbers that span exactly as many values as there are rows: a running number."""
    if column.least is None or column.greatest is None or not column.whole or column.rows < _ID_ROWS:
        return False
    return column.values == column.rows == column.greatest - column.least + 1


def infer_task(target: ColumnStatistics, num_values: int, asked: str) -> Literal["classes", "regression"]:
    """Whether the target, which has `num_values` different values, is read as classes or as a number.

    Raises `DataError` when it cannot be learned.
    """
    name = f"target {target.name!r}"
    if target.values + target.nan == 0:
        raise DataError(f"{name}: all {target.rows:,} rows are null. Choose a target with values.")
    if asked in ("binary", "multiclass"):
        return "classes"
    if target.family in ("time", "other"):
        raise DataError(
            f"{name} is of type {target.type}, neither classes nor a number. Derive a number from it."
        )
    is_text = target.family in ("boolean", "text") and target.unparsable != 0
    if asked == "regression":
        if is_text:
            raise DataError(f"{name} holds no numbers, so regression cannot learn it. Use --task multiclass.")
        return "regression"
    if is_text:
        return "classes"
    whole = target.whole or target.family == "text"
    return "classes" if whole and num_values <= FEW_CLASSES else "regression"


def safe_names(titles: Sequence[str]) -> list[str]:
    """Column names of letters, digits and underscores, unique and none of the reserved ones.

    LightGBM refuses JSON's marks in a name, XGBoost brackets and ``<``, H2O's client quotes: a name that
    no engine trips over is made once, here.
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
