"""The trials: how each was trained, its learning curve, and the settings that were searched."""

from __future__ import annotations

from sparkgpu.config.registry.engines import branch_of
from sparkgpu.report import contest_tables, tables
from sparkgpu.report.curves import LearningCurve, learning_curve
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures.learning import learning_curves


def content(run: Inputs) -> dict[str, object] | None:
    """The values of the templates."""
    found = run.results
    trials = tables.trials(found, found.comparison.metric)
    if not trials:
        return None
    curves: dict[str, list[LearningCurve]] = {}
    for trial in found.trials:
        if curve := learning_curve(run.paths.trial(trial.name).learning_curve):
            curves.setdefault(trial.model, []).append(curve)
    networks = {trial.model for trial in found.trials if branch_of(trial.engine) == "neural"}
    return {
        "trials": trials,
        "notes": [(trial.name, note) for trial in found.done() for note in trial.notes],
        "searches": contest_tables.searches(found),
        "curves": learning_curves(curves, networks),
    }
