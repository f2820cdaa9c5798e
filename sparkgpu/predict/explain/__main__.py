"""``python -m sparkgpu.predict.explain RUN_DIR``: makes ``explanations.json`` of a finished run."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from sparkgpu.core.host.interpreter import importing
from sparkgpu.core.host.processes import die_with_parent
from sparkgpu.core.host.processor import usable_cores


def main() -> int:
    """Explain the run that the command line names; returns the exit code. A refusal is one line."""
    parser = argparse.ArgumentParser(prog="python -m sparkgpu.predict.explain", description=__doc__)
    parser.add_argument("run_dir", help="the folder of a finished run")
    parser.add_argument("--seconds", type=float, help="the most wall time that it may take")
    parser.add_argument("--parent", type=int, help="end with this process, which must be the parent")
    options = parser.parse_args()
    start = time.monotonic()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the GPUs may belong to another run
    os.environ["OMP_NUM_THREADS"] = str(usable_cores())  # read by the libraries when they are imported
    if options.parent is not None:
        die_with_parent(options.parent)

    with importing():
        from sparkgpu.core.errors import SparkgpuError, TrialError
        from sparkgpu.core.rundir.files import write_json
        from sparkgpu.core.rundir.paths import RunPaths
        from sparkgpu.core.words import clean
        from sparkgpu.predict.explain.run import explain

    paths = RunPaths(root=Path(options.run_dir).expanduser().resolve())
    try:
        left_s = None if options.seconds is None else options.seconds - (time.monotonic() - start)
        found = explain(paths, left_s)
        if not found.models:  # a file without content would only hide that there is none
            why = " ".join(found.notes) or "No model of it finished."
            raise TrialError(f"{paths.root}: nothing could be explained. {why} --seconds gives more time.")
        write_json(paths.explanations, found)
    except SparkgpuError as error:
        print(f"sparkgpu: {clean(str(error))}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
