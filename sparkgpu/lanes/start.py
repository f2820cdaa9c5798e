"""Begins and ends a worker: ``python -m sparkgpu.lanes.start --run DIR --lane I --branch trees|neural``.

Its JVM starts before anything large is imported, since all that its trees do waits for it.
Every error is written to the lane's ``error.json``; its traceback goes to the log.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sparkgpu.core.errors import DeviceError
from sparkgpu.h2o.preload import prepare_environment
from sparkgpu.h2o.startup import JvmSettings, StartingJvm, launch_jvm


def main() -> None:
    """Run one worker. Exit status 0: all its trials are done; 5: one failed; 1: a defect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--lane", type=int, required=True)
    parser.add_argument("--branch", choices=("trees", "neural"), required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--source", help="the source of the table, as JSON")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--heap", type=int, help="the bytes of its JVM, which starts at once")
    parser.add_argument("--threads", type=int, help="of its JVM")
    options = parser.parse_args()
    starting: StartingJvm | None = None
    refused: DeviceError | None = None
    prepare_environment()
    if options.heap is not None:
        settings = JvmSettings(heap_bytes=options.heap, threads=options.threads, scratch=options.scratch)
        try:
            starting = launch_jvm(settings)
        except DeviceError as error:
            refused = error

    from sparkgpu.core.host.interpreter import importing

    with importing():
        from sparkgpu.core.rundir.paths import RunPaths
        from sparkgpu.lanes.process import begin, end, give_up

    begin(options.parent)
    paths = RunPaths(root=options.run)
    try:
        if refused is not None:
            raise refused
        with importing():
            from sparkgpu.core.table.source import Source
            from sparkgpu.lanes.worker import Work

        source = None if options.source is None else Source.model_validate_json(options.source)
        work = Work(paths, options.lane, options.branch, options.scratch, source, starting)
        work.run()
    except BaseException as error:
        give_up(error, [paths.lane(options.lane).error(options.branch)])
    end(work.status)


if __name__ == "__main__":
    main()
