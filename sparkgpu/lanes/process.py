"""What the processes of a run share, a lane's workers and the driver on a cluster: how they begin and end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TypeVar

from sparkgpu.core.errors import described
from sparkgpu.core.host.interpreter import importing
from sparkgpu.core.host.processes import die_with_parent
from sparkgpu.core.host.watchdog import dump_stacks_on_signal
from sparkgpu.core.rundir.files import write_json
from sparkgpu.h2o.preload import prepare_environment

ValueT = TypeVar("ValueT")

_TABLE = ("sparkgpu.prepare.prepare", "sparkgpu.prepare.to_parquet")
_H2O = ("sparkgpu.h2o.context", "sparkgpu.h2o.engine")


def begin(parent: int) -> None:
    """Before any thread: end with the process `parent`, answer with stacks, complete the environment."""
    die_with_parent(parent)
    dump_stacks_on_signal()
    prepare_environment()


def import_for_threads(*, h2o: bool) -> None:
    """Import what other threads will use, before the first of them starts."""
    from sparkgpu.h2o.preload import preload

    with importing():
        preload(h2o=h2o)
        for name in (*_TABLE, *(_H2O if h2o else ())):
            import_module(name)


def import_for_rows() -> None:
    """Import what threads use that make the table without Spark."""
    from sparkgpu.h2o.preload import preload_for_rows

    with importing():
        preload_for_rows()
        for name in _TABLE:
            import_module(name)


def in_background(function: Callable[[], ValueT]) -> Future[ValueT]:
    """Run `function` in a thread of its own."""
    return ThreadPoolExecutor(max_workers=1).submit(function)


def give_up(error: BaseException, files: Iterable[Path]) -> NoReturn:
    """Write the reason for the parent to `files` and end this process; its JVM ends with it."""
    traceback.print_exception(error)
    for file in files:
        write_json(file, described(error))
    end(1)


def end(status: int) -> NoReturn:
    """End this process at once: threads of native libraries can keep an interpreter alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
