"""What makes a Python process start safely and fast: its environment, and no garbage collection.

A new variable makes the C library move the whole environment. A thread that reads it at that moment (any C
code that calls `getenv`) crashes the process: one start in some fifty with a cold file cache. So the
variables that libraries set exist before a process starts its first thread. Later only their values
change, which moves nothing.

Imports make hardly any garbage, but hundreds of thousands of objects, and the collector walks through all
of them several times: a seventh of the time that large packages take to import, and half a second at the
end.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_OF_LIBRARIES = {
    "KMP_DUPLICATE_LIB_OK": "True",  # scikit-learn
    "KMP_INIT_AT_FORK": "FALSE",  # scikit-learn
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGINT,SIGHUP,SIGQUIT",  # torchrun's agent
}


def complete_environment(more: Mapping[str, str] | None = None) -> None:
    """Set what is not set yet, and `more`. Call it before the process starts any thread."""
    for name, value in {**_OF_LIBRARIES, **(more or {})}.items():
        os.environ.setdefault(name, value)


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
