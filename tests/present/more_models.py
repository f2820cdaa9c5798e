"""More models for a made run."""

from __future__ import annotations

import shutil

from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.paths import RunPaths


def with_models(paths: RunPaths, names: list[str]) -> None:
    """More models, which predict as the trees do."""
    metrics = read_json(paths.metrics)
    trees = next(model for model in metrics["models"] if model["name"] == "trees")
    trial = next(trial for trial in metrics["trials"] if trial["model"] == "trees")
    for number, name in enumerate(names):
        own = f"other-{number}-s7"
        metrics["models"].insert(2, trees | {"name": name, "trials": [own]})
        metrics["trials"].append(trial | {"name": own, "model": name})
        shutil.copytree(paths.trial("trees-s7").root, paths.trial(own).root)
    write_json(paths.metrics, metrics)
