"""What commands show: what is done now, tables and lines, and what was predicted."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from sparkgpu.core.words import clean, listed, metric_title, number_text, seconds_text
from sparkgpu.present.terminal.facts import print_facts

if TYPE_CHECKING:
    from sparkgpu.predict.apply import Outcome, Score
    from sparkgpu.predict.explain.file import Explained
    from sparkgpu.predict.fitted import FittedModel
    from sparkgpu.present.table_model import Table

_UNBOUNDED = 10_000
_PLAIN_WIDTH = 160  # for a file or a pipe, where rich would assume 80


def plain_console(*, stderr: bool = False) -> Console:
    """A console that shows text as it is."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    return console


@contextmanager
def telling(console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is done now: a status on a terminal, else lines on standard error.

    The status stands on standard error, or on the `console` to which the block prints.
    """
    console = console or plain_console(stderr=True)
    if not console.is_terminal:
        yield lambda text: print(f"{clean(text)} ...", file=sys.stderr, flush=True)
        return
    with console.status("looking ...") as status:
        yield lambda text: status.update(f"{clean(text)} ...")


def show_table(title: str, table: Table) -> None:
    show_lines(title)
    print_table(plain_console(), table)


def print_table(console: Console, table: Table) -> None:
    """Models that stand below each other have as many columns as fit; the last ones go first."""
    from sparkgpu.present.table_model import rich_table

    unbounded = console.options.update(max_width=_UNBOUNDED)
    while table.best_of != "row" and len(table.columns) > 3:
        if console.measure(rich_table(table), options=unbounded).maximum <= console.width:
            break
        table = table.only(range(len(table.columns) - 1))
    console.print(rich_table(table))


def show_lines(*lines: str) -> None:
    """Lines of text; a file or a pipe gets each unbroken."""
    console = plain_console()
    for line in lines:
        console.print(Text(clean(line)), soft_wrap=not console.is_terminal)


@contextmanager
def counting(quiet: bool) -> Iterator[Callable[[int], None]]:
    """A function that takes the rows predicted so far, and shows them with their rate on a terminal."""
    console = plain_console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda rows: None
        return
    start = time.monotonic()
    with console.status("loading") as status:
        yield lambda rows: status.update(
            f"{rows:,} rows, {rows / max(time.monotonic() - start, 1e-3):,.0f} rows/s"
        )


def show_predicted(model: FittedModel, outcome: Outcome | Explained, out: Path, *, quiet: bool) -> None:
    """Print what was predicted or explained; with `quiet` only the notes, on standard error."""
    if quiet:
        for note in outcome.notes:
            print(f"sparkgpu: note: {note}", file=sys.stderr)
        return
    rate = outcome.rows / max(outcome.seconds, 1e-3)
    shares = listed(f"{share:.2f} {trial}" for trial, share in model.members.items())
    made_of = f" ({shares})" if len(model.members) > 1 else ""
    pairs = (
        ("model", f"{model.name}, predicts {model.target}{made_of}"),
        ("rows", f"{outcome.rows:,} in {seconds_text(outcome.seconds)} ({rate:,.0f} rows/s)"),
        *(("note", note) for note in outcome.notes),
        *(_metrics(model, score) if (score := getattr(outcome, "score", None)) is not None else ()),
        *([("scale", scale)] if (scale := getattr(outcome, "scale", None)) is not None else ()),
        ("written", str(out)),
    )
    print_facts(plain_console(), pairs)


def predicted_json(model: FittedModel, outcome: Outcome | Explained, out: Path) -> str:
    """What was predicted or explained, for programs."""
    found = {"model": model.name, "members": dict(model.members), "target": model.target, "out": str(out)}
    return json.dumps({**found, **dataclasses.asdict(outcome)}, indent=2)


def _metrics(model: FittedModel, score: Score) -> Iterator[tuple[str, str]]:
    which = "" if score.of_all else "the first "
    yield "scored", f"{which}{score.rows:,} rows that have a {model.target}"
    low, high = score.interval
    for metric, value in score.metrics.items():
        text = number_text(value)
        if metric == score.metric and low is not None and high is not None:
            text += f" (95 % interval {number_text(low)} to {number_text(high)})"
        yield metric_title(metric), text
    if score.goal and score.decided:
        plain = f"{number_text(score.decided.plain)} by the most probable class"
        yield score.goal, f"{number_text(score.decided.value)} as decided, {plain}"
