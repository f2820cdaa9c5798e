"""The one model of a table, and its projections to the page, a notebook, Markdown and the terminal.

A cell is text with what is needed to mark, align and sort it. An absent value shows as a dash. All text is
escaped as its projection needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from markupsafe import Markup

from sparkgpu.core.words import clean, gibibytes, number_text, seconds_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Item = TypeVar("Item")

DASH = "–"
three_digits = partial(number_text, digits=3)
_LONG = 40  # letters; a longer text may take several lines
_MARKDOWN = re.compile(r"([\\`*\[\]|~])")
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # inside a word it has no meaning


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One value; `best` marks the best of its row or column, `number` aligns it to the right.

    `value` is what a column is sorted by, where that is not the text; `hint` explains the text. The page has
    `drawn` in place of the text.
    """

    text: str
    best: bool = False
    number: bool = False
    value: float | None = None
    hint: str = ""
    drawn: Markup | None = None


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

    def only(self, places: Sequence[int]) -> Table:
        """The columns at these places."""
        rows = tuple(tuple(row[place] for place in places) for row in self.rows)
        return replace(self, columns=tuple(self.columns[place] for place in places), rows=rows)

    def thin(self) -> Table:
        """Without idle columns: only dashes, only finished trials, only single devices; sortable."""
        texts = [{row[place].text for row in self.rows} for place in range(len(self.columns))]
        idle = [len(found) == 1 and found <= {DASH, "done", "single"} for found in texts]
        return replace(self.only([place for place, is_idle in enumerate(idle) if not is_idle]), sortable=True)


def table_of(
    items: Iterable[Item],
    columns: Mapping[str, Callable[[Item], Cell | str]],
    *,
    hints: Mapping[str, str] | None = None,
    best_of: str = "row",
    sortable: bool = False,
) -> Table:
    """A row for each of `items`; each column has its heading and what makes its cells."""
    made = ((make(item) for make in columns.values()) for item in items)
    rows = tuple(tuple(Cell(text=cell) if isinstance(cell, str) else cell for cell in row) for row in made)
    return Table(columns=tuple(columns), rows=rows, best_of=best_of, sortable=sortable, hints=hints or {})


def cells(*texts: str) -> tuple[Cell, ...]:
    return tuple(Cell(text=text) for text in texts)


def number_cell(value: float | None, text: Callable[[float], str] | str = number_text) -> Cell:
    """A number as `text`, or as `text` makes of it: by default with four digits."""
    if value is None:
        return Cell(text=DASH, number=True)
    return Cell(text=text if isinstance(text, str) else text(value), number=True, value=value)


def whole_cell(value: float | None) -> Cell:
    return number_cell(value, "{:,.0f}".format)


def name_cell(value: float | None) -> Cell:
    """A name that is made of digits."""
    return number_cell(value, "{:.0f}".format)


def seconds_cell(value: float | None) -> Cell:
    return number_cell(value, seconds_text)


def bytes_cell(value: float | None) -> Cell:
    return number_cell(value, gibibytes)


def interval_cell(low: float | None, high: float | None, digits: int = 4) -> Cell:
    """Both ends of an interval."""
    return number_cell(low, f"{number_text(low, digits)} to {number_text(high, digits)}")


def html(table: Table, caption: str = "") -> Markup:
    """As the page shows it: it scrolls if it is wider than its place, and the page's script may sort it."""
    heads = [
        _tag("th", name, scope="col", title=table.hints.get(name), class_="number" if cell.number else "")
        for name, cell in zip(table.columns, table.rows[0] if table else cells(*table.columns), strict=True)
    ]
    rows = [[_html_cell(table, place, cell) for place, cell in enumerate(row)] for row in table.rows]
    whole = _tag(
        "table", Markup("\n").join([_tag("caption", caption)] * bool(caption) + _parts(heads, rows)),
        class_="sortable" if table.sortable and len(table.rows) > 2 else "",
    )  # fmt: skip
    name = caption or f"Table: {table.columns[0]}"
    return _tag("div", whole, class_="scroll", tabindex="0", role="group", aria_label=name)


def _html_cell(table: Table, place: int, cell: Cell) -> Markup:
    text = Markup("{}").format(cell.text if cell.drawn is None else cell.drawn)
    if cell.number and place in table.marked:
        text += _tag("span", " ★" if cell.best else "", class_="mark")
    kind = "number" if cell.number else "long" if len(cell.text) > _LONG and cell.drawn is None else ""
    return _tag(
        "td" if place else "th", text, scope="" if place else "row", title=cell.hint,
        class_=f"{kind} best".strip() if cell.best else kind,
        data_value=cell.value if table.sortable else None,
    )  # fmt: skip


def plain_html(table: Table) -> Markup:
    """Tags without style or script, which show on any notebook's host and theme; the best is bold."""
    heads = [_tag("th", name, title=table.hints.get(name)) for name in table.columns]
    rows = [
        [
            _tag("td" if place else "th", _tag("b", clean(cell.text)) if cell.best else clean(cell.text))
            for place, cell in enumerate(row)
        ]
        for row in table.rows
    ]
    return _tag("table", Markup().join(_parts(heads, rows)))


def _parts(heads: Sequence[Markup], rows: Sequence[Sequence[Markup]]) -> list[Markup]:
    body = Markup("\n").join(_tag("tr", Markup().join(row)) for row in rows)
    return [_tag("thead", _tag("tr", Markup().join(heads))), _tag("tbody", body)]


def _tag(name: str, content: str, **attributes: object) -> Markup:
    """`content` is escaped unless it is markup; attributes without a value are left out."""
    given = (
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value not in (None, "")
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup().join(given), content)


def markdown(table: Table) -> Markup:
    """A table of GitHub's Markdown; the best is bold."""
    first = table.rows[0] if table else cells(*table.columns)
    lines = [
        table.columns,
        [Markup("---:" if cell.number else "---") for cell in first],
        *([Markup("**{}**" if cell.best else "{}").format(escape_markdown(cell.text)) for cell in row]
          for row in table.rows),
    ]  # fmt: skip
    return Markup("\n").join(
        Markup("| {} |").format(Markup(" | ").join(map(escape_markdown, line))) for line in lines
    )


def escape_markdown(value: object) -> Markup:
    """Text as Markdown shows it literally, on one line; markup is Markdown already."""
    if isinstance(value, Markup):
        return value
    text = _UNDERSCORE.sub(r"\\_", _MARKDOWN.sub(r"\\\1", " ".join(str(value).split())))
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def rich_table(table: Table) -> RichTable:
    """As the terminal shows it; the best is bold and has an asterisk, and an empty row is a gap."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, name in enumerate(table.columns):
        is_number = any(row[place].number for row in table.rows)
        whole = is_number and table.best_of == "column"  # of what is compared down a column
        shown.add_column(clean(name), justify="right" if is_number else "left", no_wrap=whole)
    for row in table.rows:
        texts = (
            clean(cell.text) + (" *" if cell.best and cell.number else "  " if place in table.marked else "")
            for place, cell in enumerate(row)
        )
        shown.add_row(
            *(Text(text, style="bold" if cell.best else "") for text, cell in zip(texts, row, strict=True))
        )
    return shown
