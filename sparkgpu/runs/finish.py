"""Ends a run: writes ``metrics.json`` from the lanes' files, then the report."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from sparkgpu import __version__
from sparkgpu.host.devices import Machine
from sparkgpu.host.monitor import Monitor
from sparkgpu.lanes.crew import Outcome
from sparkgpu.plan.plan import Plan
from sparkgpu.rundir.files import read_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import CostInfo, DataInfo, Results, RunInfo, write_results
from sparkgpu.runs.evaluate import Evaluation
from sparkgpu.runs.provenance import host, versions
from sparkgpu.table.schema import TableSchema


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Write the results: how the trials ended, their scores, and what the run took."""

    outcome: Outcome
    schema: TableSchema
    found: Evaluation
    scoring_s: float
    monitor: Monitor


def finish(paths: RunPaths, plan: Plan, trained: Trained, started: float, machine: Machine) -> Results:
    """Write ``metrics.json`` and the report, then ``metrics.json`` again with the report's seconds."""
    from sparkgpu import report

    results = Results(
        schema_version=1,
        run=_run_info(paths, plan, trained, started, machine),
        data=_data_info(trained.schema),
        models=trained.found.models,
        trials=trained.found.trials,
        comparison=trained.found.comparison,
        cost=CostInfo(
            device_hours=round(len(plan.lanes) * (time.time() - started) / 3600, 6),
            energy_wh=trained.monitor.energy_wh,
            price=None,
        ),
        phases_s={**_phases(paths, plan), "run": {"scoring": round(trained.scoring_s, 3)}},
    )
    write_results(paths, results)
    begin = time.perf_counter()
    report.build(paths)
    own = {**results.phases_s["run"], "report": round(time.perf_counter() - begin, 3)}
    results = results.model_copy(
        update={
            "run": results.run.model_copy(update={"wall_s": round(time.time() - started, 3)}),
            "phases_s": {**results.phases_s, "run": own},
        }
    )
    write_results(paths, results)
    return results


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
