"""What ``sparkgpu predict`` shows: rows so far with their rate, and at the end the result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sparkgpu.terminal.blocks import facts
from sparkgpu.words import clean, listed, metric_title, number_text, seconds_text

if TYPE_CHECKING:
    from sparkgpu.predict.apply import Outcome, Score
    from sparkgpu.predict.fitted import FittedModel


@contextmanager
def counting(quiet: bool) -> Iterator[Callable[[int], None]]:
    """A function that takes the rows so far, and shows them on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda rows: None
        return
    console = Console(stderr=True, markup=False, highlight=False)
    start = time.monotonic()
    with console.status("loading") as status:
        yield lambda rows: status.update(
            f"{rows:,} rows, {rows / max(time.monotonic() - start, 1e-3):,.0f} rows/s"
        )


def show(model: FittedModel, outcome: Outcome, out: Path, *, quiet: bool) -> None:
    """Print what was predicted; with `quiet` only the notes, on standard error."""
    if quiet:
        for note in outcome.notes:
            print(f"sparkgpu: note: {note}", file=sys.stderr)
        return
    rate = outcome.rows / max(outcome.seconds, 1e-3)
    pairs = [
        ("model", _described(model)),
        ("rows", f"{outcome.rows:,} in {seconds_text(outcome.seconds)} ({rate:,.0f} rows/s)"),
        *(("note", note) for note in outcome.notes),
    ]
    if outcome.score is not None:
        pairs += _metrics(model, outcome.score)
    pairs.append(("written", str(out)))
    if sys.stdout.isatty():
        Console(markup=False, highlight=False).print(facts(pairs))
        return
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:  # one line each, so that logs can be searched
        print(f"{name:{width}}  {clean(text)}")


def _described(model: FittedModel) -> str:
    shares = listed(f"{share:.2f} {trial}" for trial, share in model.members.items())
    return f"{model.name}, predicts {model.target}" + (f" ({shares})" if len(model.members) > 1 else "")


def _metrics(model: FittedModel, score: Score) -> Iterator[tuple[str, str]]:
    which = "" if score.of_all else "the first "
    yield "scored", f"{which}{score.rows:,} rows that have a {model.target}"
    low, high = score.interval
    for place, (metric, value) in enumerate(score.metrics.items()):
        text = number_text(value)
        if place == 0 and low is not None and high is not None:
            text += f" (95 % interval {number_text(low)} to {number_text(high)})"
        yield metric_title(metric), text
