"""Removes the half-finished files of a stopped run from its directory."""

from __future__ import annotations

import shutil

from sparkgpu.rundir.files import read_json
from sparkgpu.rundir.paths import RunPaths


def has_table(paths: RunPaths) -> bool:
    """Whether the run has its prepared table and, if Spark made it, the pipeline, which is saved after it."""
    if not paths.schema.exists():
        return False
    by_spark = paths.plan.exists() and read_json(paths.plan).get("prepared_by") == "spark"
    return paths.pipeline.exists() or not by_spark


def clear_unfinished(paths: RunPaths) -> None:
    """Remove the half-finished files of a stopped run, so that nothing reads them as results."""
    if not has_table(paths):
        for folder in (paths.table, paths.pipeline):
            shutil.rmtree(folder, ignore_errors=True)
    for pattern in ("lanes/*/*.events.jsonl", "lanes/*/*error.json", "trials/*/error.json"):
        for file in paths.root.glob(pattern):
            file.unlink()
    shutil.rmtree(paths.report, ignore_errors=True)
    paths.metrics.unlink(missing_ok=True)
    paths.stopped.unlink(missing_ok=True)
    paths.checkpoint_request.unlink(missing_ok=True)
