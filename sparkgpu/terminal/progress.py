"""The progress of one branch of one lane, and its column in the live display."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparkgpu.words import clean, clock_text, metric_title, number_text

if TYPE_CHECKING:
    from sparkgpu.config.registry.engines import Branch
    from sparkgpu.rundir.events import Event

BRANCHES: tuple[Branch, Branch] = ("trees", "neural")


@dataclass
class Progress:
    """The progress of one branch of one lane. Rates use the workers' clock, countdowns our own."""

    planned: tuple[str, ...] = ()
    text: str = "waiting"
    trial: str | None = None
    done: float | None = None
    step: int | None = None
    metric: str | None = None
    value: float | None = None
    ended: set[str] = field(default_factory=set)
    _origin: tuple[float, float] = (math.inf, 0.0)  # worker's time and share done at the start of the phase
    _estimate: tuple[float, float] | None = None  # our clock's time, and the seconds left at that time

    def take(self, event: Event, now: float) -> None:
        if event.kind == "alive":
            return
        if event.trial != self.trial:
            self.trial, self.done, self.step, self.value = event.trial, None, None, None
            self._origin, self._estimate = (event.at, event.done or 0.0), None
        if event.kind == "phase":
            self.text, self._origin, self._estimate = event.text, (event.at, self.done or 0.0), None
        elif event.kind == "progress":
            self.done = event.done
            self.step = event.step if event.step is not None else self.step
            if event.value is not None:
                self.metric, self.value = event.metric, event.value
            self._estimate = self._estimated(event, now)
        elif event.kind == "trial_left":
            self.text, self._estimate = "no time for more", None
            self.ended.add(event.trial or "")
        elif event.trial:
            self.ended.add(event.trial)
            self.done = 1.0 if event.kind == "trial_done" else self.done
            self.text, self._estimate = "done" if event.kind == "trial_done" else "failed", None

    def _estimated(self, event: Event, now: float) -> tuple[float, float] | None:
        (since, done), share = self._origin, event.done or 0.0
        if share <= done or event.at <= since:
            return self._estimate
        return now, (1.0 - share) * (event.at - since) / (share - done)

    def left_s(self, now: float) -> float | None:
        """Seconds to the planned end of the trial; early stopping may end it sooner."""
        return max(0.0, self._estimate[1] - (now - self._estimate[0])) if self._estimate else None

    def figures(self) -> list[str]:
        step = [f"step {self.step:,}"] if self.step is not None else []
        return step + (
            [f"{metric_title(self.metric or '')} {number_text(self.value)}"] if self.value is not None else []
        )

    def cell(self, now: float, *, full: bool) -> RenderableType:
        from rich.progress_bar import ProgressBar

        name = self.trial or ""
        if self.trial in self.planned and len(self.planned) > 1:
            name += f" ({self.planned.index(self.trial) + 1} of {len(self.planned)})"
        # An unknown share pulses; before the first event and after the last one nothing moves.
        still = self.text == "waiting" or self.trial in self.ended
        bar = ProgressBar(total=1.0, completed=self.done or 0.0, pulse=self.done is None and not still)
        left = self.left_s(now)
        share = f"{self.done:4.0%}" if self.done is not None else ""
        line = Table.grid(padding=(0, 1), expand=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True)
        value = number_text(self.value) if self.value is not None and not full else ""
        rest = f"{clock_text(left)} left" if left is not None else ""
        line.add_row(bar, " ".join(part for part in (value, share, rest) if part))
        if not full:
            return line
        style = {"failed": "red", "done": "green"}.get(self.text, "")
        title = Text(
            clean(f"{self.text} · {name}" if name else self.text),
            style=style,
            no_wrap=True,
            overflow="ellipsis",
        )
        return Group(title, line, Text(" · ".join(self.figures()), no_wrap=True, overflow="ellipsis"))
