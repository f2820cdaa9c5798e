"""What ``sparkgpu advise`` and ``sparkgpu bench`` show: what is measured now, tables, and notes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkgpu.words import clean

_PLAIN_WIDTH = 160  # for a file or a pipe, where rich would assume 80


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is done now: a status on a terminal, else lines on standard error."""
    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        yield lambda text: print(f"{clean(text)} ...", file=sys.stderr, flush=True)
        return
    with console.status("looking ...") as status:
        yield lambda text: status.update(f"{clean(text)} ...")


def show_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]
) -> None:
    """A table; the columns at the places `numbers` are aligned to the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_edge=False)
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    _console().print(table)


def show_lines(lines: Sequence[str]) -> None:
    """Lines of text, each as it is."""
    console = _console()
    for line in lines:
        console.print(Text(clean(line)), soft_wrap=not console.is_terminal)


def _console() -> Console:
    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False, width=_PLAIN_WIDTH)
    return console
