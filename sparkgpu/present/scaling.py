"""What several devices brought: in this run, and in a bench of its network if there is one.

Limits: the run alone shows how much its devices had to do, not what fewer would have taken; a bench measures
that. It is shown if it stands in the run's folder ``bench``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.advice import BenchRecord, BenchRow
from sparkgpu.core.rundir.files import read_optional
from sparkgpu.core.rundir.metrics_json import DoneTrial, Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.present.result_tables import strategy_text
from sparkgpu.present.table_model import (
    DASH,
    Table,
    cells,
    number_cell,
    seconds_cell,
    table_of,
    three_digits,
    whole_cell,
)

_Span = tuple[float, float]

_HINTS = {
    "time": "From the begin of the first trial to the end of the last one, without pauses between them.",
    "at once": "How many of the trials worked at the same time, on average.",
    "rows/s together": "Training rows, counted once per step, of all trials in that time.",
    "device time": "The training and predicting of all trials, times the devices of each.",
    "cost": "The device time at cost.price_per_hour.",
}


def shares(paths: RunPaths, plan: Plan, found: Results) -> Table:
    """A row for each model and the way in which its trials used devices, and one for the whole run."""
    spans = _spans(paths, found)
    rate = None if found.cost.price is None else found.cost.price / (found.cost.device_hours or 1.0)
    ways: dict[tuple[str, str, int], list[DoneTrial]] = {}
    for trial in found.done():
        ways.setdefault((trial.model, strategy_text(trial), len(trial.devices)), []).append(trial)
    rows = []
    for (model, strategy, devices), own in ways.items():
        known = [spans[trial.name] for trial in own if trial.name in spans]
        time_s = covered_s(known) if len(known) == len(own) else None
        work_s = sum(end - begin for begin, end in known)
        held_s = sum((trial.fit_s + trial.predict_s) * devices for trial in own)
        seen = sum(trial.train_rows_per_s * trial.fit_s for trial in own)
        at_once = work_s / time_s if time_s and len(own) > 1 else None
        lanes = {lane for spec in plan.trials if spec.model == model for lane in spec.gang}
        rows.append(
            (
                *cells(model, "one device each" if devices == 1 else f"{devices} devices, {strategy}"),
                whole_cell(len(own)),
                whole_cell(len(lanes)),
                seconds_cell(time_s),
                number_cell(at_once, "{:.1f}".format),
                whole_cell(seen / time_s if time_s else None),
                seconds_cell(held_s),
                number_cell(None if rate is None else rate * held_s / 3600),
            )
        )
    if not rows:
        return Table(columns=(), rows=())
    lanes_s = len(plan.lanes) * found.run.wall_s
    whole = (
        *cells("the whole run", DASH), whole_cell(len(found.done())), whole_cell(len(plan.lanes)),
        seconds_cell(found.run.wall_s), number_cell(None), number_cell(None), seconds_cell(lanes_s),
        number_cell(found.cost.price),
    )  # fmt: skip
    columns = (
        "model", "trained on", "trials", "devices", "time", "at once", "rows/s together", "device time",
        "cost",
    )  # fmt: skip
    return Table(columns=columns, rows=(*rows, whole), hints=_HINTS).thin()


def busy_sentence(paths: RunPaths, plan: Plan, found: Results) -> str:
    """How much of the time of its devices the run trained and predicted; empty if it cannot be told."""
    spans = _spans(paths, found)
    if not plan.lanes or not spans or len(spans) < len(found.done()) or not found.run.wall_s:
        return ""
    gangs = {spec.name: spec.gang for spec in plan.trials}
    of_lane = {
        lane.index: [span for name, span in spans.items() if lane.index in gangs.get(name, ())]
        for lane in plan.lanes
    }
    busy_s = sum(map(covered_s, of_lane.values()))
    share = min(1.0, busy_s / (len(plan.lanes) * found.run.wall_s))
    what = "the device" if len(plan.lanes) == 1 else f"the {len(plan.lanes)} devices"
    text = (
        f"Trials worked on {what} for {100 * share:.0f} % of the run; the rest is start, preparation and "
        "scoring, which weigh less in a longer run."
    )
    if len(plan.lanes) > 1 and all(lane.device == "cpu" for lane in plan.lanes) and not plan.master:
        text += (
            " These devices share the cores of one machine, so trials at the same time slow each other down."
        )
    return text


def measured(paths: RunPaths) -> BenchRecord | None:
    """The bench in the run's folder."""
    return read_optional(paths.bench / "bench.json", BenchRecord)


def how_to_measure(paths: RunPaths, plan: Plan, found: Results) -> str:
    """The command whose table `measured` then finds; empty for a run on a cluster or without a network."""
    if plan.master is not None or all(spec.model != "neural" for spec in plan.trials):
        return ""
    root = str(paths.root)
    there = len(found.run.host.gpus) or found.run.host.cores
    counts = [str(2**power) for power in range(4) if 2**power <= there]
    devices = ",".join(counts) + (" --simulate 2,4,8" if len(counts) == 1 else "")
    config, out = (shlex.quote(f"{root}/{name}") for name in ("run.toml", "bench"))
    gpus = " --gpus all" if found.run.host.gpus else ""
    return f"sparkgpu bench scaling --config {config}{gpus} --devices {devices} --out {out}"


def bench_table(rows: Sequence[BenchRow]) -> Table:
    """The table of a bench."""
    return table_of(
        rows,
        {
            "configuration": lambda row: row.name,
            "devices": lambda row: whole_cell(row.devices),
            "networks": lambda row: whole_cell(row.networks),
            "time": lambda row: seconds_cell(row.time_s),
            "rows/s": lambda row: whole_cell(row.rows_per_s),
            "speed-up": lambda row: number_cell(row.speed_up, "{:.2f}".format),
            "efficiency": lambda row: number_cell(row.efficiency, "{:.0%}".format),
            "device-hours": lambda row: number_cell(row.device_hours, three_digits),
            "cost": lambda row: number_cell(row.price, three_digits),
            "note": lambda row: row.note,
        },
    )


def covered_s(spans: Iterable[_Span]) -> float:
    """The seconds that lie in at least one of `spans`."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _spans(paths: RunPaths, found: Results) -> dict[str, _Span]:
    """When each finished trial began and ended, where its record tells."""
    spans = {}
    for trial in found.done():
        record = read_optional(paths.trial(trial.name).fit, FitRecord)
        if record and record.began_at is not None and record.ended_at is not None:
            spans[trial.name] = (record.began_at, record.ended_at)
    return spans
