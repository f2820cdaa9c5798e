"""The machine: its lanes, what they did over time, what several devices brought, and where the time went."""

from __future__ import annotations

from sparkgpu.report import scaling, tables
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures.activity import activity
from sparkgpu.report.pictures.timings import timings
from sparkgpu.report.prediction import prediction
from sparkgpu.report.timeline import seconds_by_phase


def content(run: Inputs) -> dict[str, object]:
    """The values of the templates."""
    compared, assumed = prediction(run.paths, run.results)
    phases = seconds_by_phase(run.paths, run.results.phases_s)
    bench = scaling.measured(run.paths)
    return {
        "prediction": compared,
        "assumed": assumed,
        "activity": activity(run.paths, on_cluster=run.plan.master is not None),
        "timings": tables.timings(phases),
        "phases": timings(phases),
        "lanes": tables.lanes(run.plan),
        "proofs": tables.proofs(run.results),
        "shares": scaling.shares(run.paths, run.plan, run.results),
        "busy": scaling.busy_sentence(run.paths, run.plan, run.results),
        "bench": bench and scaling.bench_table(bench.rows),
        "bench_title": bench.title if bench else "",
        "bench_doubts": bench is not None and any(row.is_disturbed for row in bench.rows),
        "bench_notes": bench.notes if bench else (),
        "how_to_bench": "" if bench else scaling.how_to_measure(run.paths, run.plan, run.results),
    }
