"""Writes ``metrics.json`` from the lanes' files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sparkgpu import __version__
from sparkgpu.core.host.devices import Machine
from sparkgpu.core.host.monitor import Monitor
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import CostInfo, DataInfo, Results, RunInfo, write_results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.lanes.crew import Outcome
from sparkgpu.runs.provenance import host, versions

if TYPE_CHECKING:
    from sparkgpu.runs.evaluate import Evaluation


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How the trials ended, their scores, what the run took, and the price of an hour of one device."""

    outcome: Outcome
    schema: TableSchema
    found: Evaluation
    scoring_s: float
    monitor: Monitor
    price_per_hour: float | None = None


def finish(paths: RunPaths, plan: Plan, trained: Trained, started: float, machine: Machine) -> Results:
    """Write the results of a run; its wall time ends here, and a report follows."""
    results = Results(
        schema_version=1,
        run=_run_info(paths, plan, trained, started, machine),
        data=_data_info(trained.schema),
        models=trained.found.models,
        trials=trained.found.trials,
        comparison=trained.found.comparison,
        cost=cost(len(plan.lanes), time.time() - started, trained.monitor.energy_wh, trained.price_per_hour),
        phases_s={**_phases(paths, plan), "run": {"scoring": round(trained.scoring_s, 3)}},
    )
    write_results(paths, results)
    return results


def cost(num_devices: int, wall_s: float, energy_wh: float | None, price_per_hour: float | None) -> CostInfo:
    """What a run on `num_devices` devices cost, whether or not they were busy all the time."""
    device_hours = round(num_devices * wall_s / 3600, 6)
    price = None if price_per_hour is None else device_hours * price_per_hour
    return CostInfo(device_hours=device_hours, energy_wh=energy_wh, price=price)


def _run_info(paths: RunPaths, plan: Plan, trained: Trained, started: float, machine: Machine) -> RunInfo:
    limit = {} if plan.time_limit is None else {"time_limit_s": plan.time_limit}
    return RunInfo(
        **limit,
        name=paths.root.name,
        started_at=datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        wall_s=round(time.time() - started, 3),
        sparkgpu=__version__,
        versions=versions(),
        host=host(machine),
        peak_rss_bytes=trained.monitor.peak_rss_bytes,
    )


def _data_info(schema: TableSchema) -> DataInfo:
    return DataInfo(
        source=schema.source,
        rows=schema.rows,
        rows_refused=schema.rows_refused,
        num_features=len(schema.features),
        target=schema.target,
        task=schema.task,
        classes=schema.classes,
        splits=schema.splits,
        fingerprint=schema.fingerprint,
        weighted=schema.weight is not None,
    )


def _phases(paths: RunPaths, plan: Plan) -> dict[str, dict[str, float]]:
    """Seconds by phase for every worker that reported them."""
    return {
        f"lane {lane.index} {branch}": read_json(file)
        for lane in plan.lanes
        for branch in ("trees", "neural")
        if (file := paths.lane(lane.index).phases(branch)).exists()
    }
