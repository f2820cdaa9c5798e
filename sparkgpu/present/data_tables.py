"""The tables of a run's data: its splits, features and columns with their figures; and facts of it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from sparkgpu.core.rundir.profile import ColumnProfile, TableProfile
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import clean, listed, number_text, short_source, value_text
from sparkgpu.present.result_tables import Fact
from sparkgpu.present.table_model import (
    DASH,
    Cell,
    Table,
    cells,
    number_cell,
    table_of,
    whole_cell,
)

MOST_COLUMNS = 60
"""Of the table of all columns, those that belong to the target most; ``profile.json`` has all."""

_BARS_WIDTH, _BARS_HEIGHT = 96, 22  # of a histogram, in CSS pixels
_LEVELS_IN_TEXT = 3


def about_table(schema: TableSchema) -> tuple[Fact, ...]:
    """What was predicted from how large a table."""
    kinds = f"{len(schema.numeric):,} numeric, {len(schema.categorical):,} categorical"
    classes = f", {len(schema.classes)} classes" if len(schema.classes) > 2 else ""
    return (
        Fact("table", short_source(schema.source), schema.source),
        Fact("rows", rows_text(schema)),
        Fact("features", f"{len(schema.features):,}", kinds),
        Fact("task", f"{schema.task}{classes}"),
        Fact("folds", str(schema.folds or "")),
    )


def rows_text(schema: TableSchema) -> str:
    refused = f" ({schema.rows_refused:,} refused: no target value)" if schema.rows_refused else ""
    return f"{schema.rows_text}{refused}"


def title_of(schema: TableSchema) -> str:
    """The target and the table's short name."""
    return f"{clean(schema.target)} · {short_source(schema.source)}"


def splits(schema: TableSchema) -> Table:
    total = sum(schema.splits.values()) or 1
    return table_of(
        schema.splits.items(),
        {
            "split": lambda split: split[0],
            "rows": lambda split: whole_cell(split[1]),
            "share": lambda split: number_cell(100 * split[1] / total, "{:.1f} %".format),
        },
    )


def dropped(schema: TableSchema) -> Table:
    return table_of(
        schema.dropped, {"column left out": lambda one: one.column, "reason": lambda one: one.reason}
    )


def withheld(profile: TableProfile) -> Table:
    """The columns that models must not use, and how much of each the features tell all the same."""
    return table_of(
        profile.withheld,
        {
            "withheld column": lambda one: one.column,
            "told by all features": lambda one: number_cell(one.told, _percent),
            "told most by, alone": lambda one: listed(
                f"{each.column} ({_percent(each.told)})" for each in one.proxies
            ),
        },
    )


def columns_of(profile: TableProfile, schema: TableSchema) -> Table:
    """The target, then the features that belong to it most, each with its figures and its histogram."""
    strongest = sorted(profile.columns, key=lambda column: -(column.with_target or 0.0))
    booleans = {feature.title for feature in schema.features if feature.is_boolean}
    rows = (
        _column(profile.target, " (target)"),
        *(_column(one, is_boolean=one.column in booleans) for one in strongest[:MOST_COLUMNS]),
    )
    headings = (
        "column", "kind", "missing", "distinct", "with the target", "alone", "distribution",
        "least · median · greatest, or levels",
    )  # fmt: skip
    return Table(columns=headings, rows=rows, sortable=True)


def _column(column: ColumnProfile, mark: str = "", *, is_boolean: bool = False) -> tuple[Cell, ...]:
    kind = "boolean" if is_boolean else "number" if column.kind == "numeric" else "category"
    if is_boolean and column.numbers:
        true = column.numbers.mean
        heights, alternative = [1 - true, true], "shares of false and true"
        values = hint = f"false {_percent(1 - true)}, true {_percent(true)}"
    elif numbers := column.numbers:
        heights = list(map(float, numbers.counts))
        low, high = max(numbers.low, numbers.least), min(numbers.high, numbers.greatest)
        alternative = f"histogram from {_number(low)} to {_number(high)}"
        values = " · ".join(map(_number, (numbers.least, numbers.median, numbers.greatest)))
        hint = (
            f"mean {number_text(numbers.mean)}, standard deviation {number_text(numbers.std)}, "
            f"quartiles {_number(numbers.quartile_1)} and {_number(numbers.quartile_3)}"
        )
    else:
        heights = [level.share for level in column.levels]
        alternative = f"shares of the {len(column.levels)} most frequent levels"
        texts = [f"{level.level} {_percent(level.share)}" for level in column.levels]
        values, hint = listed(texts[:_LEVELS_IN_TEXT]) or DASH, listed(texts)
    alone = None if column.alone is None else max(column.alone, 0.0)
    return (
        *cells(column.column + mark, kind),
        Cell(text=_percent(column.missing) if column.missing else DASH, number=True, value=column.missing),
        whole_cell(column.distinct),
        number_cell(column.with_target, "{:.2f}".format),
        number_cell(alone, _percent),
        Cell(text=alternative, drawn=_bars(heights, alternative)) if heights else Cell(text=DASH),
        Cell(text=values, hint=hint),
    )


def _bars(heights: Sequence[float], alternative: str) -> Markup:
    """Bars of the same width, the highest as high as the picture; what is there at all is a pixel high."""
    width, highest = _BARS_WIDTH / len(heights), max(heights) or 1
    path = "".join(
        f"M{place * width:.3g} {_BARS_HEIGHT}v-{high:.3g}h{width - 1:.3g}v{high:.3g}z"
        for place, height in enumerate(heights)
        if height and (high := max(_BARS_HEIGHT * height / highest, 1))
    )
    return Markup(
        '<svg class="bars" role="img" aria-label="{0}" width="{1}" height="{2}" viewBox="0 0 {1} {2}">'
        '<path d="{3}"/></svg>'
    ).format(alternative, _BARS_WIDTH, _BARS_HEIGHT, path)


def _number(value: float) -> str:
    return value_text(value, 1e4) if value.is_integer() or abs(value) >= 1e3 else number_text(value, 3)


def _percent(share: float) -> str:
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
