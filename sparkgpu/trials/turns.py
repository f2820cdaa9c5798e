"""Waiting for the other branch of a lane, where a device does not hold both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sparkgpu.core.rundir.events import WAITING_FOR_NETWORK, WAITING_FOR_TREES, EventWriter
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.paths import RunPaths

_WAIT_S = 0.05


def wait_for_trees(
    run: RunPaths, lanes: Sequence[int], events: EventWriter, beat: Callable[[], None] = lambda: None
) -> None:
    """Wait until no process of these lanes' trees is left on a device; `beat` is called meanwhile."""
    ended = [run.lane(lane).ended("trees") for lane in lanes]
    if all(file.exists() for file in ended):
        return
    waits = [run.lane(lane).network_waits for lane in lanes]
    for file in waits:
        write_text(file, "")
    try:
        with events.phase(WAITING_FOR_TREES):
            while not all(file.exists() for file in ended):
                beat()
                time.sleep(_WAIT_S)
    finally:
        for file in waits:
            file.unlink(missing_ok=True)


def wait_for_network(run: RunPaths, lane: int, events: EventWriter) -> bool:
    """Wait until the process of this lane's network has ended; False if that one waits for these trees."""
    own = run.lane(lane)
    with events.phase(WAITING_FOR_NETWORK):
        while not own.ended("neural").exists():
            if own.network_waits.exists():
                return False
            time.sleep(_WAIT_S)
    return True
