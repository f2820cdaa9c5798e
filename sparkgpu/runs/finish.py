"""Writes ``metrics.json`` from the lanes' files.

What a resumed run took is that of all its parts: those before this one are known by their samples in
``telemetry.csv``, since a part that was killed wrote nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from sparkgpu import __version__
from sparkgpu.core.host.devices import Machine
from sparkgpu.core.host.monitor import Monitor
from sparkgpu.core.host.telemetry import Sample, read_telemetry
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
    before = earlier_parts(read_telemetry(paths.telemetry), started)
    now = time.time()
    wall_s = now - started + before.wall_s
    monitor = trained.monitor
    energy = [found for found in (before.energy_wh, monitor.energy_wh) if found is not None]
    results = Results(
        schema_version=1,
        run=_run_info(
            paths,
            plan,
            machine,
            min(started, before.started),
            wall_s,
            max(monitor.peak_rss_bytes, before.peak_rss_bytes),
        ),
        data=_data_info(trained.schema),
        models=trained.found.models,
        trials=trained.found.trials,
        comparison=trained.found.comparison,
        cost=cost(len(plan.lanes), wall_s, sum(energy) if energy else None, trained.price_per_hour),
        phases_s={**_phases(paths, plan), "run": {"scoring": round(trained.scoring_s, 3)}},
    )
    write_results(paths, results)
    return results


def cost(num_devices: int, wall_s: float, energy_wh: float | None, price_per_hour: float | None) -> CostInfo:
    """What a run on `num_devices` devices cost, whether or not they were busy all the time."""
    device_hours = round(num_devices * wall_s / 3600, 6)
    price = None if price_per_hour is None else device_hours * price_per_hour
    return CostInfo(device_hours=device_hours, energy_wh=energy_wh, price=price)


@dataclass(frozen=True, kw_only=True)
class EarlierParts:
    """The parts of a run before this one: when the first started, and what all of them took."""

    started: float = math.inf
    wall_s: float = 0.0
    peak_rss_bytes: int = 0
    energy_wh: float | None = None


def earlier_parts(samples: Sequence[Sample], started: float) -> EarlierParts:
    """Read them from the samples before `started`; in each part `elapsed_s` begins anew."""
    parts: list[list[Sample]] = []
    for sample in samples:
        if sample.at >= started:
            break
        if not parts or sample.elapsed_s < parts[-1][-1].elapsed_s:
            parts.append([])
        parts[-1].append(sample)
    if not parts:
        return EarlierParts()
    watt_s = [
        (after.elapsed_s - before.elapsed_s) * gpu.gpu_power_w
        for part in parts
        for before, after in pairwise(part)
        for gpu in after.gpus
        if gpu.gpu_power_w is not None
    ]
    return EarlierParts(
        started=parts[0][0].at - parts[0][0].elapsed_s,
        wall_s=sum(part[-1].elapsed_s for part in parts),
        peak_rss_bytes=int(max(sample.rss_bytes or 0.0 for part in parts for sample in part)),
        energy_wh=sum(watt_s) / 3600 if watt_s else None,
    )


def _run_info(
    paths: RunPaths, plan: Plan, machine: Machine, started: float, wall_s: float, peak_rss_bytes: int
) -> RunInfo:
    limit = {} if plan.time_limit is None else {"time_limit_s": plan.time_limit}
    return RunInfo(
        **limit,
        name=paths.root.name,
        started_at=datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        wall_s=round(wall_s, 3),
        sparkgpu=__version__,
        versions=versions(),
        host=host(machine),
        peak_rss_bytes=peak_rss_bytes,
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
