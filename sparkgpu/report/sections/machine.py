"""The machine: its lanes, what they did over time, and where the time went."""

from __future__ import annotations

from sparkgpu.report import tables
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures.activity import activity
from sparkgpu.report.pictures.timings import timings
from sparkgpu.report.prediction import prediction


def content(run: Inputs) -> dict[str, object]:
    """The values of the templates."""
    compared, assumed = prediction(run.paths, run.results)
    return {
        "prediction": compared,
        "assumed": assumed,
        "activity": activity(run.paths),
        "timings": tables.timings(run.results),
        "phases": timings(run.results.phases_s),
        "lanes": tables.lanes(run.plan),
        "proofs": tables.proofs(run.results),
    }
