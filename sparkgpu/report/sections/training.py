"""The trials: how each was trained, its learning curve, and the settings that were searched."""

from __future__ import annotations

from sparkgpu.report import contest_tables, tables
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures.learning import learning_curves
from sparkgpu.report.training_curves import timed_curves


def content(run: Inputs) -> dict[str, object] | None:
    """The values of the templates."""
    found = run.results
    trials = tables.trials(found, found.comparison.metric)
    if not trials:
        return None
    return {
        "trials": trials,
        "notes": [(trial.name, note) for trial in found.done() for note in trial.notes],
        "searches": contest_tables.searches(found),
        "curves": learning_curves(timed_curves(run.paths, found), list(run.values)),
    }
