"""What the report of a run is made of: its results, plan and table, read once for all sections."""

from __future__ import annotations

from dataclasses import dataclass

from sparkgpu.plan.plan import Plan
from sparkgpu.report.curves import TestRows
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results
from sparkgpu.table.schema import TableSchema


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A run as its sections see it; a section reads its own files (profile, telemetry) through `paths`."""

    paths: RunPaths
    results: Results
    schema: TableSchema
    plan: Plan
    test: TestRows
