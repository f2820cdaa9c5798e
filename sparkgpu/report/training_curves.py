"""The learning curves of a run's trials, each by the seconds since its own training began."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkgpu.report.curves import LearningCurve, learning_curve
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import DoneTrial, Results
from sparkgpu.score.rows import FloatArray


@dataclass(frozen=True, kw_only=True)
class TimedCurve:
    """One trial's curve; `at_s` are the times of its points, and `kept` the place of the step that is kept.

    It is not `exact` if the engine gave no times: then the steps are spread evenly over the trial's time.
    """

    model: str
    curve: LearningCurve
    at_s: FloatArray
    kept: int | None
    exact: bool


def timed_curves(paths: RunPaths, results: Results) -> list[TimedCurve]:
    """The curves of all trials that left one, in the order of the models."""
    found = []
    for trial in results.trials:
        curve = learning_curve(paths.trial(trial.name).learning_curve)
        if curve is None:
            continue
        exact = bool(np.isfinite(curve.elapsed_s).all())
        whole_s = trial.fit_s if isinstance(trial, DoneTrial) else float(curve.step[-1])
        at_s = curve.elapsed_s if exact else whole_s * curve.step / max(float(curve.step[-1]), 1.0)
        kept = None
        if isinstance(trial, DoneTrial) and curve.step[0] <= trial.best_iteration <= curve.step[-1]:
            kept = int(np.abs(curve.step - trial.best_iteration).argmin())
        found.append(TimedCurve(model=trial.model, curve=curve, at_s=at_s, kept=kept, exact=exact))
    order = {model.name: place for place, model in enumerate(results.models)}
    return sorted(found, key=lambda one: order.get(one.model, len(order)))
