"""Writes ``metrics.json`` from the lanes' files.

What a run took is that of all its parts, as the samples in ``telemetry.csv`` tell it: a part that was killed
wrote nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from sparkgpu import __version__
from sparkgpu.core.host.devices import Machine
from sparkgpu.core.host.telemetry import Sample, read_telemetry
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.rundir.metrics_json import CostInfo, DataInfo, Results, RunInfo, write_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.runs.provenance import host, versions
from sparkgpu.runs.targets import Part

if TYPE_CHECKING:
    from sparkgpu.runs.evaluate import Evaluation


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A part of a run, its scores, what scoring took, and the price of an hour of one device."""

    part: Part
    found: Evaluation
    scoring_s: float
    price_per_hour: float | None = None


def finish(trained: Trained, started: float, wall_s: float, machine: Machine) -> Results:
    """Write the results of a run that was last `started` then and took `wall_s`; a report follows."""
    paths, plan = trained.part.paths, trained.part.plan
    taken = taken_by(read_telemetry(paths.telemetry), started, wall_s)
    limit = {} if plan.time_limit is None else {"time_limit_s": plan.time_limit}
    results = Results(
        schema_version=1,
        run=RunInfo(
            **limit,
            name=paths.root.name,
            started_at=datetime.fromtimestamp(taken.started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            wall_s=round(taken.wall_s, 3),
            sparkgpu=__version__,
            versions=versions(),
            host=host(machine),
            peak_rss_bytes=taken.peak_rss_bytes,
        ),
        data=_data_info(trained.part.schema),
        models=trained.found.models,
        trials=trained.found.trials,
        comparison=trained.found.comparison,
        checks=trained.found.checks,
        cost=cost(len(plan.lanes), taken.wall_s, taken.energy_wh, trained.price_per_hour),
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
class Taken:
    """What a run took in all its parts, and when the first one started."""

    started: float
    wall_s: float
    peak_rss_bytes: int
    energy_wh: float | None


def taken_by(samples: Sequence[Sample], started: float, wall_s: float) -> Taken:
    """Read it from the samples of a run whose last part `started` then and took `wall_s`.

    In each part `elapsed_s` begins anew. Energy is that of the GPUs; it is None if none reported its power.
    """
    parts: list[list[Sample]] = []
    for sample in samples:
        last = parts[-1][-1] if parts else None
        if last is None or sample.elapsed_s < last.elapsed_s or last.at < started <= sample.at:
            parts.append([])
        parts[-1].append(sample)
    before = [part for part in parts if part[0].at < started]
    watt_s = [
        (second.elapsed_s - first.elapsed_s) * (earlier.gpu_power_w + later.gpu_power_w) / 2
        for part in parts
        for first, second in pairwise(part)
        for earlier, later in zip(first.gpus, second.gpus, strict=False)
        if earlier.gpu_power_w is not None and later.gpu_power_w is not None
    ]
    return Taken(
        started=min([started, *(part[0].at - part[0].elapsed_s for part in before)]),
        wall_s=wall_s + sum(part[-1].elapsed_s for part in before),
        peak_rss_bytes=int(max((sample.rss_bytes or 0.0 for sample in samples), default=0.0)),
        energy_wh=sum(watt_s) / 3600 if watt_s else None,
    )


def _data_info(schema: TableSchema) -> DataInfo:
    same = schema.model_dump(include=set(DataInfo.model_fields) - {"weighted"})
    if not same["other_targets"]:
        same.pop("other_targets")
    refused = schema.rows_refused
    return DataInfo(
        **same,
        rows_read=schema.rows + refused,
        refused={"no target value": refused} if refused else {},
        num_features=len(schema.features),
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
