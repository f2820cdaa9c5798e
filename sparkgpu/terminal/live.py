"""The display on a terminal: trees and network side by side, and the devices below, redrawn in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType

from sparkgpu.terminal import PlainDisplay
from sparkgpu.terminal.blocks import facts
from sparkgpu.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.live import Live

    from sparkgpu.config.registry.engines import Branch
    from sparkgpu.host.telemetry import Sample
    from sparkgpu.plan.plan import Plan
    from sparkgpu.rundir.events import Event
    from sparkgpu.rundir.paths import RunPaths
    from sparkgpu.rundir.results import Results

_REFRESHES_PER_S = 2.0


class LiveDisplay(PlainDisplay):
    """A row of columns per lane, a line per device, and a warning where one idles.

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

    def event(self, lane: int, branch: Branch, event: Event) -> None:
        self._take(lane, branch, event)

    def sample(self, sample: Sample) -> None:
        self._devices.take(sample, self._training())

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

    def _facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._console.print(facts(pairs))

    def _frame(self) -> RenderableType:
        return self._moving(self._console.size.height)
