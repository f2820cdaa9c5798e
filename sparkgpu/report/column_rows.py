"""The rows of the table of all columns: a column's figures as text, and its histogram as the path of an SVG.

Limits: at most `MOST_COLUMNS` columns, those that belong to the target most, so that the page stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkgpu.rundir.profile import ColumnProfile, TableProfile
from sparkgpu.words import listed, number_text

MOST_COLUMNS = 200
OPEN_COLUMNS = 40
WIDTH, HEIGHT = 96, 22
"""Of a histogram, in CSS pixels."""

_DASH = "–"
_LEVELS_IN_TEXT = 3


@dataclass(frozen=True, kw_only=True)
class ColumnRow:
    """A column as the page shows it; `bars` is the `d` of an SVG path, empty for a column without values.

    `order` are the numbers by which the table is sorted: missing, distinct, with_target and alone.
    """

    title: str
    kind: str
    missing: str
    distinct: str
    bars: str
    alternative: str
    values: str
    hint: str
    with_target: str
    alone: str
    order: tuple[float, float, float, float]


def column_rows(profile: TableProfile) -> list[ColumnRow]:
    """The target, then the features that belong to it most."""
    strongest = sorted(profile.columns, key=lambda column: -(column.with_target or 0.0))
    return [_row(profile.target, mark=" (target)"), *map(_row, strongest[:MOST_COLUMNS])]


def _row(column: ColumnProfile, mark: str = "") -> ColumnRow:
    numbers = column.numbers
    if numbers:
        bars = _bars(numbers.counts)
        low, high = max(numbers.low, numbers.least), min(numbers.high, numbers.greatest)
        alternative = f"histogram from {_number(low)} to {_number(high)}"
        values = " · ".join(map(_number, (numbers.least, numbers.median, numbers.greatest)))
        hint = (
            f"mean {number_text(numbers.mean)}, standard deviation {number_text(numbers.std)}, "
            f"quartiles {_number(numbers.quartile_1)} and {_number(numbers.quartile_3)}"
        )
    else:
        bars = _bars([level.share for level in column.levels])
        alternative = f"shares of the {len(column.levels)} most frequent levels"
        texts = [f"{level.level} {_percent(level.share)}" for level in column.levels]
        values = listed(texts[:_LEVELS_IN_TEXT]) or _DASH
        hint = listed(texts)
    return ColumnRow(
        title=column.column + mark,
        kind="number" if column.kind == "numeric" else "category",
        missing=_percent(column.missing) if column.missing else _DASH,
        distinct=f"{column.distinct:,}",
        bars=bars,
        alternative=alternative,
        values=values,
        hint=hint,
        with_target=_DASH if column.with_target is None else f"{column.with_target:.2f}",
        alone=_DASH if column.alone is None else _percent(max(column.alone, 0.0)),
        order=(column.missing, column.distinct, column.with_target or 0.0, column.alone or 0.0),
    )


def _bars(values: Sequence[float]) -> str:
    """Bars of the same width, the highest as high as the picture; what is there at all is a pixel high."""
    if not values:
        return ""
    width, highest = WIDTH / len(values), max(values) or 1
    bars = ((place * width, max(HEIGHT * value / highest, 1)) for place, value in enumerate(values) if value)
    return "".join(f"M{x:.3g} {HEIGHT}v-{height:.3g}h{width - 1:.3g}v{height:.3g}z" for x, height in bars)


def _number(value: float) -> str:
    """Whole numbers with all digits, and years without a separator."""
    if not value.is_integer() or abs(value) >= 1e9:
        return number_text(value, 3)
    return f"{value:.0f}" if abs(value) < 10_000 else f"{value:,.0f}"


def _percent(share: float) -> str:
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
