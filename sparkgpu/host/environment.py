"""Environment variables that libraries set when they are imported, or later.

A new variable makes the C library move the whole environment. A thread that reads it at that moment (any C
code that calls `getenv`) crashes the process: one start in some fifty with a cold file cache. So these
variables exist before a process starts its first thread. Later only their values change, which moves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_OF_LIBRARIES = {
    "KMP_DUPLICATE_LIB_OK": "True",  # scikit-learn
    "KMP_INIT_AT_FORK": "FALSE",  # scikit-learn
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",  # torchrun's agent
}


def complete_environment(more: Mapping[str, str] | None = None) -> None:
    """Set what is not set yet, and `more`. Call it before the process starts any thread."""
    for name, value in {**_OF_LIBRARIES, **(more or {})}.items():
        os.environ.setdefault(name, value)
