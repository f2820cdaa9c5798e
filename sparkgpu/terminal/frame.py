"""All that moves in a display: the branches of each lane, the devices, warnings, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparkgpu.terminal.devices import Devices
from sparkgpu.terminal.progress import BRANCHES, Progress
from sparkgpu.words import clock_text

if TYPE_CHECKING:
    from sparkgpu.config.registry.engines import Branch

_LINES_OF_A_LANE = 3
_MOST_WARNINGS = 3


def frame(
    lanes: Mapping[int, str],
    progress: Mapping[tuple[int, Branch], Progress],
    devices: Devices,
    *,
    now: float,
    elapsed_s: float,
    height: int,
) -> RenderableType:
    """`lanes` are their devices by index. Of `height` lines one is left free; many lanes take a line each."""
    warnings = devices.warnings[:_MOST_WARNINGS]
    rest = height - 4 - len(warnings)  # an empty line, the heading, the time, and the free one
    full = _LINES_OF_A_LANE * len(lanes) + (len(devices) + 1) // 2 <= rest
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, style="dim")
    for _ in BRANCHES:
        table.add_column(ratio=1, no_wrap=True)
    table.add_row("", *(Text(branch, style="bold") for branch in BRANCHES))
    for index, device in lanes.items():
        cells = (progress[index, branch].cell(now, full=full) for branch in BRANCHES)
        table.add_row(f"lane {index}\n{device}" if full else f"{index} {device}", *cells)
    shown: list[RenderableType] = ["", table]
    if len(devices):
        rows = rest - len(lanes) * (_LINES_OF_A_LANE if full else 1)
        shown += ["", devices.lines(rows - 1)] if rows > len(devices) else [devices.lines(rows)]
    shown += [Text(text, style="yellow", no_wrap=True, overflow="ellipsis") for text in warnings]
    return Group(*shown, Text(f"{clock_text(elapsed_s)} elapsed", style="dim"))
