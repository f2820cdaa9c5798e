"""The files of a run that its models need to predict, copied into a folder that `sparkgpu.load` reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.prepare.level_means import FOLDER


def copy_needed(paths: RunPaths, trials: Iterable[str], folder: Path) -> None:
    """Copy ``metrics.json``, the table's schema and mean targets, and the models of these trials."""
    wanted = [paths.metrics, paths.schema, *(paths.table / FOLDER).glob("*.parquet")]
    for trial in trials:
        wanted += [file for file in paths.trial(trial).root.iterdir() if file.name.startswith("model.")]
    for file in wanted:
        target = folder / file.relative_to(paths.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
