"""The record of ``targets.json``: what a run with several targets found for each, and where its files are."""

from __future__ import annotations

from typing import Literal

from sparkgpu.core.rundir.files import Name, Part, read_record
from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.rundir.paths import RunPaths


class TargetEntry(Part):
    """One target: its `folder` in ``targets/``, its leader, and that model's metric on the test rows."""

    target: str
    folder: Name
    task: str
    metric: str
    leader: str | None = None
    value: float | None = None

    @classmethod
    def of(cls, folder: str, results: Results) -> TargetEntry:
        found = results.comparison
        models = {model.name: model.averaged or model.metrics for model in results.models}
        value = models[found.leader].test.get(found.metric) if found.leader else None
        return cls(
            target=results.data.target,
            folder=folder,
            task=results.data.task,
            metric=found.metric,
            leader=found.leader,
            value=value,
        )


class TargetIndex(Part):
    """``targets.json``: the targets in the order of the configuration."""

    schema_version: Literal[1] = 1
    targets: tuple[TargetEntry, ...]


def read_targets(paths: RunPaths) -> TargetIndex | None:
    """The targets of a finished run with several; None for a run with one."""
    return read_record(paths.targets_index, TargetIndex) if paths.targets_index.is_file() else None
