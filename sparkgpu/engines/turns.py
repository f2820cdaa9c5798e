"""Waiting for the trees of a lane, where the network cannot use the device beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sparkgpu.rundir.events import WAITING_FOR_TREES, EventWriter
from sparkgpu.rundir.paths import RunPaths

_WAIT_S = 0.05


def wait_for_trees(
    run: RunPaths, lanes: Sequence[int], events: EventWriter, beat: Callable[[], None] = lambda: None
) -> None:
    """Wait until no process of these lanes' trees is left on a device; `beat` is called meanwhile."""
    ended = [run.lane(lane).trees_ended for lane in lanes]
    if all(file.exists() for file in ended):
        return
    with events.phase(WAITING_FOR_TREES):
        while not all(file.exists() for file in ended):
            beat()
            time.sleep(_WAIT_S)
