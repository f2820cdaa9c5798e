"""What ``advise``, ``bench``, ``doctor`` and ``predict`` show: what is done now, and what came of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from sparkgpu.core.words import clean, listed, metric_title, number_text, seconds_text
from sparkgpu.present.terminal.facts import facts

if TYPE_CHECKING:
    from sparkgpu.predict.apply import Outcome, Score
    from sparkgpu.predict.fitted import FittedModel

_PLAIN_WIDTH = 160  # for a file or a pipe, where rich would assume 80
_STYLES = {"ok": "green", "warning": "yellow", "failure": "red", "not tried": "dim"}
_CHECK_WIDTH = 27


def _console() -> Console:
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, emoji=False, highlight=False, width=_PLAIN_WIDTH)
    return console


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is done now: a status on a terminal, else lines on standard error."""
    console = Console(stderr=True, highlight=False)
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


class Check(Protocol):
    """A check of ``sparkgpu doctor`` as it is shown."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def fix(self) -> str: ...


class Checks:
    """Shows checks as they are done, and on a terminal what is being tried."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console = console
        self._status = status

    def check(self, check: Check) -> None:
        style = _STYLES[check.status]
        line = Text(f"{check.status:<10}", style=style)
        line.append(f"{clean(check.name):<{_CHECK_WIDTH}} ", style="bold")
        line.append(clean(check.found), style="")
        self._console.print(line, soft_wrap=True)
        if check.fix:
            fix = f"{'':<{10 + _CHECK_WIDTH}} fix: {clean(check.fix)}"
            self._console.print(Text(fix, style=style), soft_wrap=True)

    def begin(self, what: str) -> None:
        if self._status is not None:
            self._status.update(f"{what} ...")


@contextmanager
def examining(*, quiet: bool) -> Iterator[Checks]:
    """Shows the checks of the block; nothing if `quiet`."""
    console = Console(quiet=quiet, highlight=False)
    if quiet or not console.is_terminal:
        yield Checks(console, None)
        return
    with console.status("looking ...") as status:
        yield Checks(console, status)


@contextmanager
def counting(quiet: bool) -> Iterator[Callable[[int], None]]:
    """A function that takes the rows predicted so far, and shows them with their rate on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda rows: None
        return
    start = time.monotonic()
    with Console(stderr=True, markup=False, highlight=False).status("loading") as status:
        yield lambda rows: status.update(
            f"{rows:,} rows, {rows / max(time.monotonic() - start, 1e-3):,.0f} rows/s"
        )


def show_predicted(model: FittedModel, outcome: Outcome, out: Path, *, quiet: bool) -> None:
    """Print what was predicted; with `quiet` only the notes, on standard error."""
    if quiet:
        for note in outcome.notes:
            print(f"sparkgpu: note: {note}", file=sys.stderr)
        return
    rate = outcome.rows / max(outcome.seconds, 1e-3)
    shares = listed(f"{share:.2f} {trial}" for trial, share in model.members.items())
    made_of = f" ({shares})" if len(model.members) > 1 else ""
    pairs = [
        ("model", f"{model.name}, predicts {model.target}{made_of}"),
        ("rows", f"{outcome.rows:,} in {seconds_text(outcome.seconds)} ({rate:,.0f} rows/s)"),
        *(("note", note) for note in outcome.notes),
        *(_metrics(model, outcome.score) if outcome.score is not None else ()),
        ("written", str(out)),
    ]
    if sys.stdout.isatty():
        Console(markup=False, highlight=False).print(facts(pairs))
        return
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:  # one line each, so that logs can be searched
        print(f"{name:{width}}  {clean(text)}")


def _metrics(model: FittedModel, score: Score) -> Iterator[tuple[str, str]]:
    which = "" if score.of_all else "the first "
    yield "scored", f"{which}{score.rows:,} rows that have a {model.target}"
    low, high = score.interval
    for place, (metric, value) in enumerate(score.metrics.items()):
        text = number_text(value)
        if place == 0 and low is not None and high is not None:
            text += f" (95 % interval {number_text(low)} to {number_text(high)})"
        yield metric_title(metric), text
