"""Python's collector of cyclic garbage, told to rest where a process only imports, or ends.

Imports make hardly any garbage, but hundreds of thousands of objects, and the collector walks through all of
them several times: a seventh of the time that large packages take to import, and half a second at the end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Within the block nothing is collected; what exists at its end is never looked at again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def end_quickly() -> None:
    """Call it when the process is about to end: the interpreter then does not search what it drops anyway."""
    gc.freeze()
