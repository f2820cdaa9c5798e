"""Leaves word of what stopped a run before its end, for those who look at its folder only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sparkgpu.errors import EXIT_INTERRUPTED, NoticeToStop, SparkgpuError
from sparkgpu.rundir.files import write_json
from sparkgpu.rundir.paths import RunPaths


@contextmanager
def record_stop_reason(paths: RunPaths) -> Iterator[None]:
    """If the block is interrupted or refuses, write ``stopped.json``, unless the folder is gone by then.

    After a refusal the report says what happened.
    """
    try:
        yield
    except (KeyboardInterrupt, SparkgpuError) as error:
        code, message = EXIT_INTERRUPTED, "interrupted"
        if isinstance(error, NoticeToStop):
            message = "interrupted by a notice that its time is nearly over"
        elif isinstance(error, SparkgpuError):
            code, message = error.exit_code, str(error)
        if paths.root.is_dir():
            with suppress(OSError):  # the error in flight matters more
                write_json(paths.stopped, {"exit_code": code, "message": message})
                if code != EXIT_INTERRUPTED:  # whoever interrupts does not wait
                    _leave_page(paths)
        raise


def _leave_page(paths: RunPaths) -> None:
    """The report of what stands."""
    from sparkgpu.present.report import build

    with suppress(SparkgpuError):
        build(paths)
