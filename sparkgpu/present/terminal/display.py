"""What the user sees during a run: the plan, the table, the progress of both branches, the result.

`open_display` picks one of four displays: columns redrawn in place on a terminal, a block in a notebook's
cell (`notebook`), plain lines anywhere else, and with ``--quiet`` only errors and the result. Limits: only
one thread may call it, and it reads no files. Names from the user's data are printed as text, never as markup
or control codes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self, cast

from rich.console import Console, RenderableType
from rich.text import Text

from sparkgpu.core.words import blend_of_one, capital, clean, seconds_text
from sparkgpu.present.terminal.facts import plan_facts, print_facts, table_facts
from sparkgpu.present.terminal.progress import BRANCHES, Progress, frame
from sparkgpu.present.terminal.spool import Spool, say

if TYPE_CHECKING:  # only for types: importing pydantic's models takes longer than importing this
    from rich.live import Live

    from sparkgpu.core.config.registry.engines import Branch
    from sparkgpu.core.host.telemetry import Sample
    from sparkgpu.core.plan.plan import Plan
    from sparkgpu.core.rundir.events import Event
    from sparkgpu.core.rundir.metrics_json import Results
    from sparkgpu.core.rundir.paths import RunPaths
    from sparkgpu.core.table.schema import TableSchema

_PLAIN_WIDTH = 110  # for a log file, where rich would assume 80
_UNREAD_S = 30.0  # how long the end of a run waits for a reader of its output
_UNREAD_ERROR_S = 1.0
_TRAINING = "training"
_MARKS = (0.25, 0.5, 0.75)  # shares of a trial at which plain mode reports
_REFRESHES_PER_S = 2.0


def open_display(
    quiet: bool,
    stream: IO[str] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    passed_s: float = 0.0,
) -> Display:
    """The display for `stream` (standard output by default); a context manager.

    Its seconds count from `passed_s` ago.
    """
    from sparkgpu.present.terminal.notebook import NotebookDisplay, in_notebook

    out = stream or _standard_output()
    if quiet:
        return Display(out, clock=clock, passed_s=passed_s)
    if in_notebook(out):
        return NotebookDisplay(clock=clock)
    live = out.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    return (LiveDisplay if live else PlainDisplay)(out, clock=clock, passed_s=passed_s)


def _standard_output() -> IO[str]:
    """Standard output; if it is the process's own, a spool, so that a run never waits for its reader."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout is sys.__stdout__:
        return cast(IO[str], Spool(sys.stdout))
    return sys.stdout


class Display:
    """The quiet display, and the base of the others: before the result it shows only errors."""

    def __init__(
        self, stream: IO[str], *, clock: Callable[[], float] = time.monotonic, passed_s: float = 0.0
    ) -> None:
        self._clock = clock
        self._start = clock() - passed_s
        terminal = stream.isatty()
        self._spool = stream if isinstance(stream, Spool) else None
        self._stderr = sys.stderr  # the present one: a live display replaces it by a proxy
        self._console = Console(
            file=stream, width=None if terminal else _PLAIN_WIDTH, force_terminal=terminal,
            force_jupyter=False, markup=False, emoji=False, highlight=False,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if self._spool is None:
            return
        if kind is not None:
            with suppress(OSError):  # the error in flight matters more
                self._spool.drain(_UNREAD_ERROR_S)
        elif not self._spool.drain(_UNREAD_S):
            self.error("nobody read standard output, so its last part was dropped.")

    def close(self) -> None:
        """Restore the terminal; harmless when repeated."""

    def waiting(self, text: str) -> None:
        """Show what the run waits for before it has a plan."""

    def plan(self, plan: Plan, source: str, target: str | None) -> None:
        """Show the plan, before anything slow begins."""

    def table(self, schema: TableSchema) -> None:
        """Show what the prepared table holds and what was left out."""

    def event(self, lane: int, branch: Branch, event: Event) -> None:
        """Handle one event of a worker."""

    def sample(self, sample: Sample) -> None:
        """Show what the devices and the machine do; comes about once a second."""

    def warning(self, text: str) -> None:
        """Show what the user should look at while the run goes on."""

    def finish(self, results: Results, paths: RunPaths) -> None:
        """Show what was found, and where the run lies."""
        # These load numpy, which the start of a run does not need.
        from sparkgpu.present.leaderboard import all_metrics, decisions, intervals
        from sparkgpu.present.terminal.commands import print_table

        self.close()
        # What the earlier parts of a resumed run took counts as well.
        self._start = min(self._start, self._clock() - results.run.wall_s)
        table = all_metrics(results)
        self._console.print()
        if results.data.other_targets:
            self._line(f"target  {clean(results.data.target)}")
        print_table(self._console, table)
        if table.marked:
            self._line(f"* best of the {table.best_of}", "dim")
        only = next((model.only for model in results.models if model.only), None)
        for pair in results.pairs:
            self._line(capital(clean(pair.sentence)))
        if only is not None:
            self._line(blend_of_one(clean(only)))
        if decided := decisions(results):
            self._console.print()
            print_table(self._console, decided)
            self._line("difference: the rule minus the most probable class, on the test rows", "dim")
        if sure := intervals(results):
            self._console.print()
            print_table(self._console, sure)
        for caveat in results.comparison.caveats:
            self._line(f"note: {clean(caveat)}")
        for trial in results.failed:
            self._line(f"{clean(trial.name)} failed: {clean(trial.error)}", "red")
        self._console.print()
        if leader := results.comparison.leader:
            stars = "; each * is of the test rows" if table.marked else ""
            self._line(f"leader  {leader}, by the validation rows{stars}")
        self._line(f"run     {paths.root}  (result after {results.run.wall_text})", whole=True)

    def report(self, page: Path, notes: Sequence[str]) -> None:
        """Show where the report lies, once it is made, and what it lacks."""
        for note in notes:
            self._line(f"note: {clean(note)}")
        took = seconds_text(self._clock() - self._start)
        self._line(f"report  {page}  ({took} in all)", whole=True)

    def error(self, message: str) -> None:
        """One line on standard error, ``sparkgpu: ...``."""
        say(f"sparkgpu: {clean(message)}\n", self._stderr)

    def _line(self, text: str, style: str = "", *, whole: bool = False) -> None:
        # Paths are copied and logs are searched, so do not wrap their lines.
        self._console.print(Text(text, style=style), soft_wrap=whole or not self._console.is_terminal)


class PlainDisplay(Display):
    """Lines for logs and pipes, with seconds: one per phase, quarter of a trial and end of a trial."""

    def __init__(
        self, stream: IO[str], *, clock: Callable[[], float] = time.monotonic, passed_s: float = 0.0
    ) -> None:
        super().__init__(stream, clock=clock, passed_s=passed_s)
        self._plan: Plan | None = None
        self._progress: dict[tuple[int, Branch], Progress] = {}

    def waiting(self, text: str) -> None:
        self._line(clean(text), "dim")

    def plan(self, plan: Plan, source: str, target: str | None) -> None:
        self._plan = plan
        for lane in plan.lanes:
            for branch in BRANCHES:
                planned = tuple(trial.name for trial in plan.of(lane.index, branch))
                self._progress[lane.index, branch] = Progress(planned=planned)
        title = Text("sparkgpu", style="bold")
        data = f"  {clean(source)}" + (f", target {clean(target)}" if target else "")
        title.append(data, style="not bold")
        self._console.print(title)
        print_facts(self._console, plan_facts(plan))

    def table(self, schema: TableSchema) -> None:
        print_facts(self._console, table_facts(schema))

    def event(self, lane: int, branch: Branch, event: Event) -> None:
        progress = self._progress.setdefault((lane, branch), Progress())
        before, phase = progress.done or 0.0, (progress.text, progress.trial)
        progress.take(event, self._clock())
        if "." in (event.trial or "") and not (event.kind == "phase" and event.text == _TRAINING):
            return  # one of the many settings of a search; its line says when it begins
        if event.kind == "phase" and (progress.text, progress.trial) != phase:
            trial = f" ({event.trial})" if event.trial else ""
            self._say(lane, branch, f"{event.text}{trial}")
        elif event.kind == "progress" and any(before < mark <= (event.done or 0.0) for mark in _MARKS):
            parts = [f"{event.trial or ''} {event.done or 0.0:.0%}".strip(), *progress.figures()]
            if (left := progress.left_s(self._clock())) is not None:
                parts.append(f"up to about {seconds_text(left)} left")
            self._say(lane, branch, ", ".join(parts))
        elif event.kind == "trial_done":
            self._say(lane, branch, f"{event.trial} done")
        elif event.kind == "trial_failed":
            self._say(lane, branch, f"{event.trial} failed: {event.text}")

    def warning(self, text: str) -> None:
        self._line(f"[{self._clock() - self._start:6.1f} s] warning: {clean(text)}", "yellow")
        self._console.file.flush()

    def _say(self, lane: int, branch: str, text: str) -> None:
        place = f"lane {lane} {branch}" if self._plan and len(self._plan.lanes) > 1 else branch
        self._line(f"[{self._clock() - self._start:6.1f} s] {place}: {clean(text)}")
        self._console.file.flush()  # users follow a growing log


class DrawnDisplay(PlainDisplay):
    """What is drawn in place, on a terminal and in a notebook; only a failed trial is a line, which stays."""

    _sample: Sample | None = None

    def event(self, lane: int, branch: Branch, event: Event) -> None:
        self._progress.setdefault((lane, branch), Progress()).take(event, self._clock())
        if event.kind == "trial_failed":
            self._say(lane, branch, f"{event.trial} failed: {event.text}")

    def _moving(self, height: int) -> RenderableType:
        now = self._clock()
        lanes = self._plan.lanes if self._plan else ()
        return frame(lanes, self._progress, self._sample, now=now, elapsed_s=now - self._start, height=height)

    def sample(self, sample: Sample) -> None:
        self._sample = sample


class LiveDisplay(DrawnDisplay):
    """A row of columns per lane, and a line per device.

    A thread of rich redraws it, so the clock runs even if nothing happens. The terminal's cursor is hidden
    from `plan` until `close`.
    """

    _live: Live | None = None

    def plan(self, plan: Plan, source: str, target: str | None) -> None:
        from rich.cells import cell_len
        from rich.live import Live

        cell_len("–")  # imports the table of character widths in this thread, not in the drawing one
        super().plan(plan, source, target)
        self._live = Live(
            console=self._console, get_renderable=self._frame, refresh_per_second=_REFRESHES_PER_S
        )
        try:
            self._live.start(refresh=True)
        except BaseException:
            self.close()
            raise

    def finish(self, results: Results, paths: RunPaths) -> None:
        if self._live:
            self._live.transient = True  # the result replaces the bars
        super().finish(results, paths)

    def error(self, message: str) -> None:
        if self._live and self._stderr.isatty():
            self._line(f"sparkgpu: {clean(message)}", "red")  # above the columns, on the same terminal
        else:
            super().error(message)

    def close(self) -> None:
        live, self._live = self._live, None
        try:
            if live:
                live.stop()
        finally:
            # A second Ctrl-C may have interrupted `stop`.
            if live:
                self._console.show_cursor(True)

    def _frame(self) -> RenderableType:
        return self._moving(self._console.size.height)
