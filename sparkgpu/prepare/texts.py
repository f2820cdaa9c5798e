"""Numbers and moments stored as text: the columns that hold them, and the SQL that reads them.

A column is read as numbers or moments only if each of its texts is one or a mark for a missing value. All
rows count, so that every split reads it the same way. In formats with types (Parquet, ORC, the catalog)
somebody chose text, so whole numbers stay words: flight numbers, zip codes and levels called ``1`` to ``5``
look just like counts. A decimal point shows a measured value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkgpu.config.values import Role
from sparkgpu.jvm.sql import quoted, text_literal
from sparkgpu.prepare.moments import moment_figures, varying_parts
from sparkgpu.prepare.roles import FLOAT32_MAX, ColumnStatistics, Held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MISSING_MARKS = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "?", "-")
"""Texts that stand for a missing number or moment (a category keeps them as a level)."""

BLANKS = "".join(map(chr, range(0x21)))
"""The blanks that Java, and so Spark, ignores around a number."""

NUMBER = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity)|(?i:nan)"
"""What Java accepts as a number; it must match the whole text without its blanks."""

MEASURED = r"[.]|[eE][+-]"
"""Found in some text of numbers that are not codes (``12E3`` may be the number of a seat)."""

LEADING_ZERO = r"^[+-]?0[0-9]"
"""A beginning that only codes have; people do not write numbers like this."""

MOMENT = (
    r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}"
    r"(:[0-9]{2}([.][0-9]{1,9})?(Z|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)?)?)?"
)
"""A date or moment of ISO 8601 that both Spark and pyarrow can read; without a zone it is in UTC."""

_SAMPLE_ROWS = 200
_SAMPLE_LETTERS = 100


def text_as_number(column: str) -> str:
    """The SQL that reads a text as a number; null for a missing-value mark and for any other text.

    Java accepts ``12D`` and ``14F`` as numbers; for a reader they are codes.
    """
    return (
        f"CASE WHEN trim({column}) NOT IN ({_MARKS}) AND NOT trim({column}) RLIKE '[0-9.][dDfF]$' "
        f"THEN try_cast({column} AS double) END"
    )


def finite(number: str) -> str:
    """The SQL of a number that is null if it is not finite in 32 bits, which all engines learn from.

    In Spark, NaN is above infinity.
    """
    return f"CASE WHEN abs({number}) <= {FLOAT32_MAX!r}D THEN {number} END"


def too_large(number: str) -> str:
    """The SQL that counts the finite numbers that do not fit 32 bits."""
    return f"count_if(abs({number}) > {FLOAT32_MAX!r}D AND abs({number}) < double('inf'))"


def text_as_moment(column: str) -> str:
    """The SQL that reads a text as a moment; null for any other text."""
    return f"CASE WHEN trim({column}) RLIKE '^({MOMENT})$' THEN try_cast({column} AS timestamp) END"


def numbers_in_text(column: str, number: str, *, typed: bool, is_target: bool) -> dict[str, str]:
    """The aggregates of a text column that may hold only numbers, in SQL by the name of the figure.

    `number` names the result of `text_as_number`, which is slow and so computed once.
    """
    found = {
        "unparsable": f"count_if({_is_no_mark(column)} AND {number} IS NULL)",
        "numbers": f"count({number})",
        "infinite": f"count_if(abs({number}) = double('inf'))",
        "too large": too_large(number),
        "least": f"min({finite(number)})",
        "greatest": f"max({finite(number)})",
    }
    if typed:
        found["measured"] = f"count_if(trim({column}) RLIKE '{MEASURED}')"
        found["leading zeros"] = f"count_if(trim({column}) RLIKE '{LEADING_ZERO}')"
    if is_target:
        found["broken"] = f"count_if({number} <> floor({number}))"
    return found


def moments_in_text(column: str, moment: str) -> dict[str, str]:
    """The aggregates of a text column that may hold only moments; `moment` names the parsed moments."""
    return {
        "no moments": f"count_if({_is_no_mark(column)} AND {moment} IS NULL)",
        "moments": f"count({moment})",
        **moment_figures(moment),
    }


def text_statistics(
    name: str, *, rows: int, values: int, found: Mapping[str, Any], asked: Role | None, typed: bool
) -> ColumnStatistics:
    """What a column of `values` texts holds, from those of the figures above that were gathered.

    `typed` means that the format has types, so text was somebody's choice.
    """
    held: Held = "words"
    if found.get("unparsable") == 0 and (found["numbers"] or not typed):
        is_code = typed and (found["leading zeros"] or not found["measured"])
        held = "codes" if is_code and asked != "numeric" else "numbers"
    elif found.get("no moments") == 0 and found["moments"]:
        held = "moments"
    parts = varying_parts(found) if held == "moments" or asked == "timestamp" else ()
    if held == "numbers":
        infinite, too_large = found["infinite"], found["too large"]
        least, greatest = found["least"], found["greatest"]
        return ColumnStatistics(
            name=name,
            type="string",
            rows=rows,
            values=found["numbers"],
            varies=least is None or least != greatest or infinite + too_large > 0,
            infinite=infinite,
            too_large=too_large,
            least=least,
            greatest=greatest,
            whole=found.get("broken") == 0,
            held=held,
            parts=parts,
        )
    return ColumnStatistics(
        name=name,
        type="string",
        rows=rows,
        values=found["moments"] if held == "moments" else values,
        held=held,
        parts=parts,
    )


def may_hold(texts: Sequence[str | None]) -> frozenset[Held]:
    """What a column with these sample texts may hold."""
    stripped = [text.strip(BLANKS) for text in texts if text is not None]
    words = [text for text in stripped if text not in MISSING_MARKS]
    ways: dict[Held, str] = {"numbers": NUMBER, "moments": MOMENT}
    return frozenset(held for held, way in ways.items() if all(re.fullmatch(way, text) for text in words))


def sample_texts(table: DataFrame, columns: Sequence[str]) -> dict[str, frozenset[Held]]:
    """What each text column may hold, judged by the first rows.

    Most columns are plainly words, and checking every row of those would be slow.
    """
    if not columns:
        return {}
    first = table.selectExpr(*(f"substr({quoted(name)}, 1, {_SAMPLE_LETTERS})" for name in columns))
    rows = first.head(_SAMPLE_ROWS)
    return {name: may_hold([row[place] for row in rows]) for place, name in enumerate(columns)}


_MARKS = ", ".join(map(text_literal, MISSING_MARKS))


def _is_no_mark(column: str) -> str:
    return f"trim({column}) NOT IN ({_MARKS})"
