"""What a table of the report is made of: cells of text, with what a page needs to mark, align and sort them.

An absent or null value shows as a dash, and a column of dashes can be left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparkgpu.words import gibibytes, number_text, seconds_text

DASH = "–"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One value; `best` marks the best of its row, `number` aligns it to the right.

    `value` is what a column is sorted by, where that is not the text; `hint` explains the text.
    """

    text: str
    best: bool = False
    number: bool = False
    value: float | None = None
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A heading for each column, and rows with one cell for each; a mark is for the best of a `best_of`.

    The values of a `sortable` table's columns are of one kind. `hints` explain headings.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best_of: str = "row"
    sortable: bool = False
    hints: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def marked(self) -> frozenset[int]:
        """The columns in which some number has a mark, so that the others there leave room for it."""
        return frozenset(
            place for row in self.rows for place, cell in enumerate(row) if cell.best and cell.number
        )


def without_idle_columns(
    columns: Sequence[str],
    rows: Sequence[tuple[Cell, ...]],
    *,
    hints: Mapping[str, str] | None = None,
    best_of: str = "row",
) -> Table:
    """Leave out columns without information: only dashes, only finished trials, only single devices."""
    idle = {DASH, "done", "single"}
    kept = [i for i in range(len(columns)) if len(found := {row[i].text for row in rows}) > 1 or found - idle]
    return Table(
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        best_of=best_of,
        sortable=True,
        hints=hints or {},
    )


def number_cell(value: float | None) -> Cell:
    return Cell(text=number_text(value), number=True, value=value)


def whole_cell(value: int | None, *, plain: bool = False) -> Cell:
    """A count or, with `plain`, a name made of digits."""
    text = DASH if value is None else str(value) if plain else f"{value:,}"
    return Cell(text=text, number=True, value=value)


def seconds_cell(value: float | None) -> Cell:
    return Cell(text=DASH if value is None else seconds_text(value), number=True, value=value)


def bytes_cell(value: int | None) -> Cell:
    return Cell(text=DASH if value is None else gibibytes(value), number=True, value=value)
