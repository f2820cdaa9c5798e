"""The parts of a run: the whole of it or, of several targets, a run directory for each in ``targets/``.

Each is what a run with that target alone leaves, so everything that reads a run reads it. The network of all
targets was cut for each by its engine; the files of the lanes are in the folder of the whole run alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.lanes.worker_supervisor import Outcome


@dataclass(frozen=True, kw_only=True)
class Part:
    """A run directory with its plan and table, the reasons of its failed trials, and notes on trials.

    Of several targets, `folder` is the name of its own.
    """

    paths: RunPaths
    plan: Plan
    schema: TableSchema
    failed: Mapping[str, str]
    notes: Mapping[str, str]
    folder: str | None = None


def parts_of(paths: RunPaths, plan: Plan, config: RunConfig, outcome: Outcome) -> list[Part]:
    """The run itself; of several targets the run directories, with the files that they share."""
    schema = read_schema(paths)
    if not schema.targets:
        return [Part(paths=paths, plan=plan, schema=schema, failed=outcome.failed, notes=outcome.notes)]
    return [_part(paths, folder, plan, config, outcome) for folder in schema.targets]


def _part(paths: RunPaths, folder: str, plan: Plan, config: RunConfig, outcome: Outcome) -> Part:
    own = paths.target(folder)
    schema = read_schema(own)
    specs = [spec for spec in plan.trials if spec.target in (None, folder)]
    trials = tuple(spec.model_copy(update={"name": spec.own_name}) for spec in specs)
    plan = plan.model_copy(update={"trials": trials})
    data = config.data.model_copy(update={"target": schema.target})
    resolved = plan.resolved(config.model_copy(update={"data": data}), TableSize.of(schema))
    write_text(own.config, config_io.dump(resolved.config), mode=0o600)
    write_json(own.plan, plan)
    for file in filter(Path.exists, (paths.config_schema, paths.env, paths.telemetry)):
        shutil.copyfile(file, own.root / file.name)
    if paths.pipeline.exists():
        shutil.copytree(paths.pipeline, own.pipeline, dirs_exist_ok=True)
    failed, notes = (
        {spec.own_name: texts[spec.name] for spec in specs if spec.name in texts}
        for texts in (outcome.failed, outcome.notes)
    )
    return Part(paths=own, plan=plan, schema=schema, failed=failed, notes=notes, folder=folder)
