"""The display in a notebook: one block of the cell's output, updated in place.

The block is HTML with plain text beside it, so it also lasts in a saved notebook. Only the thread that runs
the cell writes it: when something happens, and with each sample of the devices.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Sequence
from io import StringIO
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.theme import Theme

from sparkgpu.present.terminal.display import DrawnDisplay

if TYPE_CHECKING:
    from pathlib import Path

    from sparkgpu.core.config.registry.engines import Branch
    from sparkgpu.core.host.telemetry import Sample
    from sparkgpu.core.plan.plan import Plan
    from sparkgpu.core.rundir.events import Event
    from sparkgpu.core.rundir.metrics_json import Results
    from sparkgpu.core.rundir.paths import RunPaths

_WIDTH = 84  # as many characters as a cell shows beside JupyterLab's side bar
_TALL = 1_000
_UPDATE_EVERY_S = 0.5
_PRE = (
    '<pre style="white-space:pre;overflow-x:auto;font-size:13px;line-height:1.25;'
    "font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace\">{code}</pre>"
)


_GREY = (128, 128, 128)
# They can be read on white and on black. In order: black, red, green, yellow, blue, magenta, cyan, white.
_COLOURS = [
    _GREY, (222, 76, 76), (38, 150, 80), (184, 128, 0), (66, 120, 220), (190, 80, 190), (0, 145, 155), _GREY,
]  # fmt: skip
_THEME = TerminalTheme((255, 255, 255), (0, 0, 0), _COLOURS)


def in_notebook(stream: IO[str]) -> bool:
    """Whether this is the kernel of a notebook, and `stream` is what its cells show."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None and stream is sys.stdout


class NotebookDisplay(DrawnDisplay):
    """What the terminal shows, as one block."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(StringIO(), clock=clock)
        self._console = self._recorder()
        self._id = uuid.uuid4().hex
        self._is_shown = self._moves = self._is_over = False
        self._next = 0.0

    def waiting(self, text: str) -> None:
        super().waiting(text)
        self._update()

    def plan(self, plan: Plan, source: str, target: str | None) -> None:
        super().plan(plan, source, target)
        self._moves = True
        self._update()

    def event(self, lane: int, branch: Branch, event: Event) -> None:
        super().event(lane, branch, event)
        self._update(sparing=event.kind == "progress")

    def sample(self, sample: Sample) -> None:
        super().sample(sample)
        self._update(sparing=True)

    def finish(self, results: Results, paths: RunPaths) -> None:
        self._moves, self._is_over = False, True  # the result replaces the bars
        super().finish(results, paths)
        self._update()

    def report(self, page: Path, notes: Sequence[str]) -> None:
        super().report(page, notes)
        self._update()

    def close(self) -> None:
        if not self._is_over and self._is_shown:
            self._is_over = True
            self._update()

    def _recorder(self) -> Console:
        return Console(
            file=StringIO(), record=True, width=_WIDTH, color_system="truecolor", force_terminal=True,
            force_jupyter=False, markup=False, emoji=False, highlight=False,
            theme=Theme({"bar.back": "#b0b0b0"}),
        )  # fmt: skip

    def _update(self, *, sparing: bool = False) -> None:
        """Write the block anew; `sparing` leaves it out if that was done just now."""
        from IPython.display import display

        now = monotonic()
        if sparing and now < self._next:
            return
        self._next = now + _UPDATE_EVERY_S
        consoles = [self._console]
        if self._moves:
            consoles.append(self._recorder())
            consoles[1].print(self._moving(_TALL))
        block: dict[str, Any] = {"text/html": "", "text/plain": ""}
        for console in consoles:
            block["text/html"] += console.export_html(
                theme=_THEME, inline_styles=True, code_format=_PRE, clear=False
            )
            block["text/plain"] += console.export_text(clear=False)
        display(block, raw=True, display_id=self._id, update=self._is_shown)  # type: ignore[no-untyped-call]
        self._is_shown = True
