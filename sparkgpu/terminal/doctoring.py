"""What ``sparkgpu doctor`` shows: a line for each check, and what is being tried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.status import Status
from rich.text import Text

from sparkgpu.words import clean

_STYLES = {"ok": "green", "warning": "yellow", "failure": "red", "not tried": "dim"}
_WIDTH = 27


class Line(Protocol):
    """A check as this module shows it."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def fix(self) -> str: ...


class Shown:
    """Shows checks as they are done; `status` tells what is being tried, on a terminal."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console = console
        self._status = status

    def check(self, check: Line) -> None:
        style = _STYLES[check.status]
        line = Text(f"{check.status:<10}", style=style)
        line.append(f"{clean(check.name):<{_WIDTH}} ", style="bold")
        line.append(clean(check.found), style="")
        self._console.print(line, soft_wrap=True)
        if check.fix:
            self._console.print(
                Text(f"{'':<10}{'':<{_WIDTH}} fix: {clean(check.fix)}", style=style), soft_wrap=True
            )

    def begin(self, what: str) -> None:
        if self._status is not None:
            self._status.update(f"{what} ...")


@contextmanager
def examining(*, quiet: bool) -> Iterator[Shown]:
    """Shows the checks of the block; nothing if `quiet`."""
    console = Console(file=sys.stdout, quiet=quiet, highlight=False)
    if quiet or not console.is_terminal:
        yield Shown(console, None)
        return
    with console.status("looking ...") as status:
        yield Shown(console, status)
