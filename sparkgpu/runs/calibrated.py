"""The calibration of a run's models: a temperature for each trial, and its effect on the test rows.

N test rows, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparkgpu.rundir.results import CalibrationResult
from sparkgpu.score.calibration import brier_score, calibration_error, scaled, temperature
from sparkgpu.score.predictions import Labels, averaged
from sparkgpu.score.rows import FloatArray, Task


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A trial's temperature, and its probabilities of the test rows (N, C) before it is applied."""

    temperature: float
    test: FloatArray

    @classmethod
    def fit(cls, task: Task, valid: Labels, valid_NC: FloatArray, test_NC: FloatArray) -> Calibrated:
        """With the temperature that fits the validation rows best."""
        found = temperature(task, valid.label_N, valid_NC, valid.weight_N)
        return cls(temperature=found, test=test_NC)


def calibration_of(
    task: Task, trials: Sequence[Calibrated], test: Labels, *, applied: bool
) -> CalibrationResult:
    """The calibration of one model, whose predictions are the mean over its `trials`."""
    before_NC = averaged([trial.test for trial in trials])
    after_NC = averaged([scaled(trial.test, trial.temperature) for trial in trials])
    return CalibrationResult(
        temperature=float(np.mean([trial.temperature for trial in trials])),
        error_before=calibration_error(task, test.label_N, before_NC, test.weight_N),
        error_after=calibration_error(task, test.label_N, after_NC, test.weight_N),
        brier_before=brier_score(task, test.label_N, before_NC, test.weight_N),
        brier_after=brier_score(task, test.label_N, after_NC, test.weight_N),
        applied=applied,
    )
